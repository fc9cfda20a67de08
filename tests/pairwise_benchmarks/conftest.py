"""A project with a scratch policy, six instructions in the hub's layout, and a judge on the loopback address."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

from judgefree.bases.build import build_base
from judgefree.check import write_resolved
from judgefree.config_benchmarks import AlpacaEval
from judgefree.files import pretty_json, write_atomic
from tests.pairwise_benchmarks.world import GENERATION, SCRATCH, write_alpaca, write_arena

ROOT = Path(__file__).parents[2]


class Server:
    """Judges by what stands in the request: `verdict(prompt)`; every prompt is kept."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.verdict = lambda prompt: "[[A>B]]"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][-1]["content"]
                outer.prompts.append(prompt)
                reply = {"choices": [{"message": {"content": outer.verdict(prompt)}}],
                         "usage": {"prompt_tokens": 10, "completion_tokens": 2}}  # fmt: skip
                content = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.http.shutdown()
    one.http.server_close()


def settings(url: str) -> dict[str, Any]:
    params = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text())
    params |= {"bases": {"tiny": SCRATCH}, "runs": {}, "suites": {}, "data": {}, "prompts": {}}
    params["judges"] = {"local": {
        "kind": "endpoint", "url": url, "model": "stand-in", "request": {"temperature": 0.0}, "concurrency": 2,
        "timeout_s": 20.0, "attempts": 1, "backoff_s": 0.01,
    }}  # fmt: skip
    params["alpaca_eval"] = {
        "models": {"tiny": {}}, "id": "./alpaca", "judge": "local", "prompts": "prompts/judge-alpaca.yaml",
        "orders": "random", "seed": 0, "generation": GENERATION,
    }  # fmt: skip
    params["arena_hard"] = {
        "models": {"tiny": {}}, "id": "./arena", "judge": "local", "seed": 0, "generation": GENERATION, "style": True,
        "categories": ["hard_prompt", "creative_writing"],
        "prompts": {"hard_prompt": "prompts/judge-hard-prompts.yaml",
                    "creative_writing": "prompts/judge-creative-writing.yaml"},
    }  # fmt: skip
    return params


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/tiny of a policy that learnt nothing."""
    root = tmp_path_factory.mktemp("scratch")
    return build_base("tiny", {"base": {key: value for key, value in SCRATCH.items() if key != "suites"}}, root)


@pytest.fixture
def project(tmp_path: Path, server: Server, scratch: Path) -> SimpleNamespace:
    """models/tiny, both benchmarks' files and the resolved settings; `change(section, **keys)` resolves anew."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "prompts").symlink_to(ROOT / "prompts")
    write_alpaca(root / "alpaca")
    write_arena(root / "arena")
    params = settings(server.url)

    def change(section: str, **keys: Any) -> None:
        params[section] = {**params[section], **keys}
        write_atomic(root / "params.yaml", pretty_json(params))
        write_resolved(root)

    change("alpaca_eval")
    shutil.copytree(scratch, root / "models" / "tiny")
    return SimpleNamespace(root=root, server=server, change=change)


@pytest.fixture
def alpaca_settings() -> AlpacaEval:
    return AlpacaEval.model_validate({
        "models": {}, "id": "./alpaca", "judge": "local", "orders": "random", "seed": 0, "generation": GENERATION,
    })  # fmt: skip
