"""Local folders, and the real hub client against a small server in the hub's layout on the loopback address."""

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.constants
import pytest
from huggingface_hub.utils import httpx

from judgefree.bases.build import build_base
from judgefree.errors import JudgefreeError, MayPass
from judgefree.files import sha256_file, verify

REVISION = "c" * 40
SCRATCH = {
    "kind": "scratch", "vocabulary": "arithmetic", "seed": 0, "hidden_size": 16, "intermediate_size": 16, "layers": 1,
    "heads": 2, "max_length": 64, "max_value": 5,
}  # fmt: skip


@pytest.fixture
def model(tmp_path):
    """A model as its maker left it: with code, pickled weights and notes beside the files that are wanted."""
    folder = tmp_path / "theirs"
    shutil.copytree(build_base("made", {"base": SCRATCH}, tmp_path / "maker"), folder)
    (folder / "manifest.json").unlink()
    for name in ("modeling_own.py", "pytorch_model.bin", "README.md"):
        (folder / name).write_text("not wanted")
    return folder


def wanted(model):
    unwanted = {"modeling_own.py", "pytorch_model.bin", "README.md"}
    return {path.name: path.read_bytes() for path in model.iterdir() if path.name not in unwanted}


def split_weights(model, shards):
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
    index = {"metadata": {}, "weight_map": {f"layer.{place}": shard for place, shard in enumerate(shards)}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


def test_a_folder_is_copied_without_code_and_pickles(model, tmp_path):
    made = build_base("mine", {"base": {"kind": "folder", "path": "theirs"}}, tmp_path)
    manifest = verify(made)
    assert {name: facts["sha256"] for name, facts in manifest["files"].items()} == {
        name: sha256_file(model / name) for name in wanted(model)
    }
    assert manifest["kind"] == "folder" and str(tmp_path) not in json.dumps(manifest)
    assert (model / "README.md").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named(name, model, tmp_path):
    (model / name).unlink()
    with pytest.raises(JudgefreeError, match=f"theirs has no {name}"):
        build_base("mine", {"base": {"kind": "folder", "path": str(model)}}, tmp_path)
    assert not (tmp_path / "models").exists()


def test_pickled_weights_alone_are_refused(model, tmp_path):
    (model / "model.safetensors").unlink()
    with pytest.raises(JudgefreeError, match=r"has no \*.safetensors file"):
        build_base("mine", {"base": {"kind": "folder", "path": "theirs"}}, tmp_path)


def test_a_missing_shard_is_named(model, tmp_path):
    split_weights(model, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
    with pytest.raises(JudgefreeError, match="has no model-00002-of-00002.safetensors, though"):
        build_base("mine", {"base": {"kind": "folder", "path": "theirs"}}, tmp_path)


def test_whole_shards_are_copied_with_their_index(model, tmp_path):
    split_weights(model, ["model-00001-of-00002.safetensors"])
    made = build_base("mine", {"base": {"kind": "folder", "path": "theirs"}}, tmp_path)
    assert {"model-00001-of-00002.safetensors", "model.safetensors.index.json"} <= {p.name for p in made.iterdir()}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: (model / "config.json").write_text('{"a":'), "config.json of .* is not valid JSON"),
        (
            lambda model: (model / "model.safetensors").write_bytes(b"cut"),
            "model.safetensors is not a safetensors file",
        ),
    ],
)
def test_a_damaged_file_is_named(damage, message, model, tmp_path):
    damage(model)
    with pytest.raises(JudgefreeError, match=message):
        build_base("mine", {"base": {"kind": "folder", "path": "theirs"}}, tmp_path)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(JudgefreeError, match="nowhere does not exist"):
        build_base("mine", {"base": {"kind": "folder", "path": "nowhere"}}, tmp_path)


@pytest.fixture
def hub(model, monkeypatch):
    """Serves `model` as some/model at REVISION; every other id or revision is unknown. Gives the list of requests."""
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            asked.append(self.path)
            path = self.path.split("?")[0]
            file = model / path.rpartition("/")[2]
            if path == f"/api/models/some/model/tree/{REVISION}":
                rows = [
                    {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": "e" * 40} for p in model.iterdir()
                ]
                self.reply(200, json.dumps(rows).encode(), "application/json")
            elif path == f"/api/models/some/model/revision/{REVISION}":
                siblings = [{"rfilename": p.name} for p in sorted(model.iterdir())]
                body = {"id": "some/model", "sha": REVISION, "siblings": siblings}
                self.reply(200, json.dumps(body).encode(), "application/json")
            elif path.startswith(f"/some/model/resolve/{REVISION}/") and file.is_file():
                self.reply(200, file.read_bytes(), "application/octet-stream")
            else:
                self.reply(404, b"", "text/plain")

        def reply(self, status, body, kind):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", REVISION)
            self.send_header("ETag", '"' + "f" * 40 + '"')
            if status == 404:
                self.send_header("X-Error-Code", "RevisionNotFound")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield asked
    server.shutdown()
    server.server_close()


def test_a_hub_model_is_fetched_without_code_and_pickles(hub, model, tmp_path):
    made = build_base("theirs", {"base": {"kind": "hub", "id": "some/model", "revision": REVISION}}, tmp_path)
    manifest = verify(made)
    got = {path.name: path.read_bytes() for path in made.iterdir() if path.name != "manifest.json"}
    assert got == wanted(model)
    assert manifest["source"] == f"some/model at revision {REVISION}"
    assert not [path for path in hub if path.endswith((".py", ".bin"))]


def test_a_revision_that_the_hub_does_not_know_is_named(hub, tmp_path):
    with pytest.raises(JudgefreeError, match=f"cannot fetch some/model at revision {'d' * 40} from the hub: .*404"):
        build_base("theirs", {"base": {"kind": "hub", "id": "some/model", "revision": "d" * 40}}, tmp_path)


def test_without_a_hub_the_message_names_mirror_and_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(JudgefreeError, match="cannot fetch some/model") as caught:
        build_base("theirs", {"base": {"kind": "hub", "id": "some/model", "revision": REVISION}}, tmp_path)
    assert "HF_ENDPOINT" in caught.value.fix and "kind: folder" in caught.value.fix
    assert not (tmp_path / "models").exists()


def test_an_error_without_words_is_told_by_its_kind(tmp_path, monkeypatch):
    def silent(*args, **kwargs):
        raise httpx.ReadTimeout("")

    monkeypatch.setattr("judgefree.bases.hub.snapshot_download", silent)
    with pytest.raises(MayPass, match="from the hub: ReadTimeout"):
        build_base("theirs", {"base": {"kind": "hub", "id": "some/model", "revision": REVISION}}, tmp_path)


def test_an_id_that_is_none_is_refused(tmp_path):
    with pytest.raises(JudgefreeError, match="cannot fetch a b/c/d"):
        build_base("theirs", {"base": {"kind": "hub", "id": "a b/c/d", "revision": REVISION}}, tmp_path)
