"""The worked examples of docs/spyrl.md, as they stand on the page: a further task without code, another environment."""

import json
import re
import shutil
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from world import training

from judgefree.check import checked, write_resolved
from judgefree.config import Suite
from judgefree.data.prepare import prepare
from judgefree.data.splits import load_split
from judgefree.episodes import Completion, Example, Prompt
from judgefree.files import read_json
from judgefree.methods import TEXTS, Setting, options_of
from judgefree.methods.spyrl import Spyrl
from judgefree.rlsvr.environment import play
from judgefree.scoring.grader import Grader
from judgefree.texts import check_texts, read_texts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spyrl.md").read_text()
GAMES, SOURCES, MINUTES, RUN = (
    YAML(typ="safe").load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
)


class Reader:
    """A player lists the decisions that it sees; a detector or reader says what `vote` makes of its prompt."""

    def __init__(self, vote: Any) -> None:
        self.vote = vote
        self.texts: list[str] = []

    def encode_message(self, text: str) -> list[int]:
        self.texts.append(text)
        return [len(self.texts) - 1]

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        texts = [self.texts[prompt.ids[0]] for prompt in prompts]
        said = [
            self.vote(text)
            if role in ("detector", "reader")
            else f"hm\nAnswer: {sorted(re.findall('[A-Z][0-9]', text))}"
            for text, role in zip(texts, [prompt.key[1] for prompt in prompts], strict=True)
        ]
        return [[Completion([2, 1], one, "stop")] * n for one in said]

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


def shortest(text: str) -> str:
    lists = re.findall(r"^List (\d):\n(.*)$", text, re.MULTILINE)
    return f"\\boxed{{{min(lists, key=lambda one: len(one[1]))[0]}}}"


def project(root: Path) -> None:
    """The page's three blocks in a project, as a reader would put them there beside a base, and a file of minutes."""
    tiny = YAML(typ="safe", pure=True).load((ROOT / "profiles" / "tiny.yaml").read_text())
    base = {"qwen3-4b-instruct": {"kind": "folder", "path": "hub/base", "suites": []}}
    shutil.copytree(ROOT / "prompts", root / "prompts")
    for file, content in (
        ("params.yaml", {**tiny, "bases": base, "suites": {}, **SOURCES, **RUN}),
        ("prompts/spyrl-minutes.yaml", MINUTES),
    ):
        with (root / file).open("w") as stream:
            YAML(typ="safe", pure=True).dump(content, stream)
    meetings = [f"we met A{n} then B{n} then C{n} then D{n} and E{n} then went F{n}" for n in range(5)]
    folder = root / "hub" / "minutes"
    folder.mkdir(parents=True)
    (folder / "minutes.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in meetings))


def test_a_further_task_is_a_prompt_file_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGEFREE_MIRROR", raising=False)
    project(tmp_path)
    params = checked(tmp_path / "params.yaml")
    write_resolved(tmp_path)
    prepare("minutes", read_json(tmp_path / "resolved" / "data" / "minutes.json"), tmp_path)
    examples = load_split(tmp_path / "data" / "minutes", "train")
    assert len(examples) == 4 and len(load_split(tmp_path / "data" / "minutes", "validation")) == 1
    texts = read_texts(tmp_path, params.runs["minutes"].options["prompts"], "options.prompts")
    setting = Setting(training(group_size=5, rollout_size=20), params.prompts["minutes"], Grader(1, 2.0), 0, texts)
    method = Spyrl(options_of("minutes", params.runs["minutes"]), setting)
    rollout = method.play(examples, Reader(shortest))
    assert rollout.metrics["information_loss/ratio"] == round(0.3 * 14) / 14
    assert rollout.metrics["detector/accuracy"] > 0.7 and rollout.metrics["votes/unreadable"] == 0


def test_another_environment_is_one_more_file() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    module: Any = types.ModuleType("pairing")
    exec(compile(code, "docs/spyrl.md", "exec"), module.__dict__)
    examples = [Example(f"e{n}", f"about A{n}") for n in range(8)]

    def find(text: str) -> str:
        first, _, written = text.split("\n")[:3]
        return f"\\boxed{{{1 if re.search('[A-Z][0-9]', written)[0] in first else 2}}}"  # type: ignore[index]

    class Whole(Reader):
        def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
            return [
                [Completion([1], self.vote(text) if prompt.key[1] == "reader" else text.split("\n")[0], "stop")]
                for prompt in prompts
                for text in [self.texts[prompt.ids[0]]]
            ]

    pairs = play(module.Pairing(0), examples, Whole(find), 0)  # type: ignore[arg-type]
    assert [pair.reward for pair in pairs] == [1.0] * 8 and {pair.latent for pair in pairs} == {0, 1}
    blind = play(module.Pairing(0), examples, Whole(lambda text: "\\boxed{1}"), 0)  # type: ignore[arg-type]
    assert sum(pair.reward for pair in blind) == sum(pair.latent == 0 for pair in pairs)


@pytest.mark.parametrize("file", sorted((ROOT / "prompts").glob("spyrl-*.yaml")), ids=lambda path: path.stem)
def test_prompt_files_hold_what_the_game_needs(file: Path) -> None:
    texts = read_texts(ROOT, f"prompts/{file.name}", "options.prompts")
    check_texts(texts, TEXTS["spyrl"], file.name)
    heading = texts["civilian"].split("{source}")[0]
    assert not heading or re.fullmatch(r"[A-Z][a-z ]+:\n", heading)
    for role in ("civilian", "spy", "detector"):  # the source first, under one heading: players share a prefix
        assert texts[role].startswith(f"{heading}{{source}}\n")
    for told in ("you are", "your summary", "your story", "your problem", "player 1"):
        assert told not in texts["detector"].lower()
    # an overseer, who sees all, reads it too
    assert not re.search(r"may be (blacked|starred) out for you", " ".join(texts["detector"].split()))
    offered = "\\boxed{N/A}" in texts["detector"]
    assert offered == (file.stem not in ("spyrl-brief", "spyrl-memo")), "docs/spyrl.md says which files offer N/A"


def test_a_suite_with_games_is_accepted_as_it_stands() -> None:
    game = Suite.model_validate(GAMES["suites"]["memo"]).game
    assert game
    check_texts(read_texts(ROOT, game.prompts, "k"), TEXTS["spyrl"], game.prompts)
