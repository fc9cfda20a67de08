"""Six instructions and four prompts in the layouts of the hub, and a scratch policy's settings."""

import json
from pathlib import Path

import pandas as pd

from judgefree.files import write_atomic

INSTRUCTIONS = ["3 + 4 = ?", "9 - 5 + 1 = ?", "2 + 2 = ?", "8 - 1 = ?", "6 + 5 - 3 = ?", "1 + 1 = ?"]
BASELINE = ["7", "5, since 9 - 5 is 4", "4", "seven", "8, as 6 + 5 is 11", "2"]
DIFFICULTY = [-1.0, 0.5, -2.0, 0.0, 1.5, -0.5]
ARENA = [("u1", "hard_prompt"), ("u2", "hard_prompt"), ("u3", "hard_prompt"), ("w1", "creative_writing")]
SCRATCH = {
    "kind": "scratch", "vocabulary": "arithmetic", "seed": 0, "hidden_size": 16, "intermediate_size": 32, "layers": 1,
    "heads": 2, "max_length": 64, "max_value": 12, "suites": [],
}  # fmt: skip
GENERATION = {"chat": False, "max_completion_tokens": 8, "batch_rows": 4, "seed": 0, "temperature": 0.7, "top_k": 20}


def write_alpaca(folder: Path) -> None:
    """The two files that AlpacaEval has on the hub, of six instructions."""
    rows = [{"instruction": text, "output": output, "generator": "gpt4_1106_preview", "dataset": "by_hand"}
            for text, output in zip(INSTRUCTIONS, BASELINE, strict=True)]  # fmt: skip
    write_atomic(folder / "alpaca_eval_gpt4_baseline.json", json.dumps(rows))
    gamed = [
        {"model": model, "preference": preference, "index": place, "std_delta_len": length * (place + 1),
         "instruction_difficulty": DIFFICULTY[place], "not_gamed_baseline": False}
        for model, preference, length in (("verbose", 0.65, -0.4), ("concise", 0.25, 0.5)) for place in range(6)
    ]  # fmt: skip
    pd.DataFrame(gamed).to_csv(folder / "df_gamed.csv", index=False)


def write_arena(folder: Path) -> None:
    """Arena-Hard in the hub's layout: prompts of both categories and their baselines' answers."""
    inside = folder / "data" / "arena-hard-v2.0"
    questions = [
        {"uid": uid, "category": category, "subcategory": "by hand", "prompt": f"{n} + 1 = ?"}
        for n, (uid, category) in enumerate(ARENA)
    ]
    answers = {
        name: [
            {"uid": uid, "model": name, "messages": [{"role": "user", "content": "?"},
             {"role": "assistant", "content": {"answer": f"**{uid}**\n- one\n- two"}}], "metadata": {}}
            for uid, _ in ARENA
        ]
        for name in ("o3-mini-2025-01-31", "gemini-2.0-flash-001")
    }  # fmt: skip
    write_atomic(inside / "question.jsonl", "".join(json.dumps(row) + "\n" for row in questions))
    for name, rows in answers.items():
        write_atomic(inside / "model_answer" / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
