"""SRRL and RFT through the whole stage `train`, on a policy that guesses: what a run keeps, and an interruption."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from stage_project import same_bytes_when_interrupted
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from world import TRAINING

from judgefree.data.tables import SCHEMA, write_parquet
from judgefree.files import pretty_json, read_json, seal, write_atomic
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.texts import read_texts
from judgefree.training.run import train

ROOT = Path(__file__).parents[2]
WORDS = ["<pad>", "<eos>", "<unk>", "####", "review", "wrong", *"0123456789", "+", "so"]
SRRL = {"gate": "per_rollout", "untagged": "whole", "prompts": "prompts/srrl-tiny.yaml", "distillation_weight": 1.0,
        "distillation": "sequence", "memory": {"rule": "latest", "size": 5}}  # fmt: skip


@pytest.fixture(scope="module")
def guesser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says `so #### n` with n one of 1, 2, 3 to whatever it is asked, most of the time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("guesser")
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    ).save_pretrained(folder)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    ))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        prompts = torch.randint(2, len(WORDS), (24, 5))
        answers = torch.tensor([[WORDS.index("so"), 3, WORDS.index("1") + i % 3, 1] for i in range(24)])
        ids = torch.cat([prompts, answers], dim=1)
        labels = ids.masked_fill(torch.arange(9) < 5, -100)
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def project(guesser: Path, tmp_path: Path) -> Path:
    shutil.copytree(guesser, tmp_path / "models" / "start")
    seal(tmp_path / "models" / "start", {"kind": "base"})
    for split in ("train", "validation"):
        rows = [
            {
                **dict.fromkeys(SCHEMA.names),
                "id": f"{split}{i}",
                "question": f"{i % 7} + {i % 5}",
                "answer": str(i % 3 + 1),
            }
            for i in range(40)
        ]
        write_parquet(tmp_path / "data" / "d" / f"{split}.parquet", rows, SCHEMA)
    seal(tmp_path / "data" / "d", {})
    return tmp_path


def resolve(root: Path, method: str, options: dict, **changes: Any) -> None:
    training = {**TRAINING, "steps": 8, "save_every": 4, "updates_per_rollout": 2, "learning_rate": 1e-3,
                "max_prompt_tokens": 40, **changes}  # fmt: skip
    run = {"method": method, "dataset": "d", "start_from": "start", "seed": 0, "select": "last", "options": options}
    resolved = {
        "run": run, "training": training, "prompt": {"template": "{question}", "chat": False, "answer": "marker"},
        "grading": {"workers": 1, "timeout_s": 1.0}, "threads": 1,
    }  # fmt: skip
    if "prompts" in options:
        resolved["texts"] = read_texts(ROOT, options["prompts"], "options.prompts")
    write_atomic(root / "resolved" / "train" / "r.json", pretty_json(resolved))


def records(root: Path) -> list[dict[str, Any]]:
    return [
        row for file in sorted((root / "models" / "r" / "records").iterdir()) for row in pq.read_table(file).to_pylist()
    ]


def test_srrl_trains_and_keeps_its_memory(project: Path) -> None:
    resolve(project, "srrl", SRRL)
    train("r", project)
    rows = {row["step"]: row for row in pq.read_table(project / "models" / "r" / "history.parquet").to_pylist()}
    metrics = rows[8].keys() - {"step"}
    assert "validation/ungraded" in metrics and not [name for name in metrics if describe(mlflow_name(name)) is None]
    by_step: dict[int, list[dict[str, Any]]] = {}
    for row in records(project):
        by_step.setdefault(row["step"], []).append(row)
    assert sorted(by_step) == [0, 2, 4, 6]
    remembered: list[str] = []
    for step, played in by_step.items():
        of = {role: [row for row in played if row["role"] == role] for role in ("attempt", "review", "second")}
        measured = rows[step + 1]
        assert len(of["attempt"]) == 16 and measured["reward"] == sum(r["reward"] for r in of["attempt"]) / 16
        wrong = [(r["prompt_id"], r["slot"]) for r in of["attempt"] if r["reward"] == 0]
        assert [(r["prompt_id"], r["slot"]) for r in of["review"]] == wrong and wrong
        assert [r["reward"] for r in of["review"]] == [r["reward"] for r in of["second"]]
        assert {r["memory"] for r in of["review"]} == {remembered[-1] if remembered else None}
        remembered += [r["guidelines"] for r, s in zip(of["review"], of["second"], strict=True) if s["reward"] == 1]
        assert measured["rollout/completions"] == len(played) and measured["memory/size"] == len(remembered[-5:])
        assert measured["rollout/tokens"] == sum(r["tokens"] for r in played)
        lengths = [r["tokens"] for r in of["attempt"]]
        assert measured["completions/mean_length"] == sum(lengths) / 16  # the roles' mixture is not what is watched
    assert remembered and sum(row["distilled"] for row in records(project)) > 0
    state = read_json(project / "models" / "r" / "method_state.json")["method"]
    assert [past["review"] for past in state["memory"]] == remembered[-5:] and state["rollouts"] == 4
    (work,) = (project / ".work" / "train").glob("*/")
    halfway = json.loads((work / "checkpoint-4" / "method_state.json").read_text())["method"]
    assert halfway["rollouts"] == 2 and len(halfway["memory"]) > 0


@pytest.mark.parametrize(
    "options",
    [{"gate": "always", "memory": None}, {"gate": "all_failed", "distillation_weight": 0.0, "distillation": None}],
)
def test_the_ablations_train(project: Path, options: dict[str, Any]) -> None:
    resolve(project, "srrl", {k: v for k, v in {**SRRL, **options}.items() if v is not None}, steps=2, save_every=2)
    train("r", project)
    played = records(project)
    assert any(row["distilled"] for row in played) == ("distillation" not in options)
    solved = {row["prompt_id"] for row in played if row["role"] == "attempt" and row["reward"] == 1}
    reviewed = {row["prompt_id"] for row in played if row["role"] == "review"}
    assert reviewed and (reviewed & solved == (set() if options["gate"] == "all_failed" else solved))


def test_rft_imitates_the_right_ones_alone(project: Path) -> None:
    resolve(project, "rlvr", {"imitation_weight": 1.0}, steps=2, save_every=2)
    train("r", project)
    rows = pq.read_table(project / "models" / "r" / "history.parquet").to_pylist()
    played = records(project)
    assert len(played) == 16 and {row["advantage"] for row in played} == {0.0}
    assert 0 < sum(row["reward"] for row in played) < 16
    assert rows[1]["frac_reward_zero_std"] == 1.0 and rows[1]["grad_norm"] > 0
    before = load_file(project / "models" / "start" / "model.safetensors")
    after = load_file(project / "models" / "r" / "model.safetensors")
    assert any(not after[name].equal(value) for name, value in before.items())


@pytest.mark.parametrize("rule", ["random", "nearest"])
def test_an_interrupted_run_has_the_same_bytes(project: Path, rule: str) -> None:
    resolve(project, "srrl", {**SRRL, "memory": {"rule": rule, "size": 20}})
    same_bytes_when_interrupted(project)
    assert len(read_json(project / "models" / "r" / "method_state.json")["method"]["memory"]) > 5
