"""What the writers of the spy game do to the facts of a memo as they learn: `python -m benchmarks.memo_faults WORK RUN...`

For finished runs on the world of memos (`make reproduce`, arms spyrl*), by fifths of the run and by role, as shares: facts
that a writer sees and leaves out, or names otherwise; of a spy, hidden facts that it names, and names rightly; and the mean
of votes received. An invented fact is a fault that only a detector who compares values can see.
"""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from judgefree.data.memo import NAMES

PARTS = 5
LAST_AMOUNT = 40  # numbers above it are years
Facts = Mapping[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder of a reproduction, such as .work/reproduce")
    parser.add_argument("runs", nargs="+", help="for instance spyrl-s0 spyrl-performing-s0")
    options = parser.parse_args()
    for run in options.runs:
        files = sorted((options.work / "models" / run / "records").glob("*.parquet"))
        print(f"{run}\n{by_part(pd.concat([pd.read_parquet(file) for file in files])).round(3).to_string()}\n")


def read(text: str) -> dict[str, str]:
    """The facts that a memo or a summary names, by kind; the last one where a kind is named twice."""
    return {kind: word for word in re.findall(r"[^\s.]+", text) if (kind := _kind(word))}


def faults(output: Facts, seen: Facts, hidden: Facts) -> dict[str, int]:
    """Of one output: facts seen, left out, named otherwise; hidden facts, those named, those named rightly."""
    return {
        "seen": len(seen),
        "omitted": sum(kind not in output for kind in seen),
        "wrong": sum(kind in output and output[kind] != value for kind, value in seen.items()),
        "hidden": len(hidden),
        "invented": sum(kind in output for kind in hidden),
        "guessed": sum(output.get(kind) == value for kind, value in hidden.items()),
    }


def by_part(records: pd.DataFrame) -> pd.DataFrame:
    """A row per fifth of the run and role, from the records of a run."""
    performed = records[records["role"] == "performer"]
    sources = performed[performed["slot"] == 0].set_index(["step", "prompt_id"])
    rows = []
    for one in performed.itertuples():
        game = sources.loc[(one.step, one.prompt_id)]
        facts, seen, spy = read(game.source), read(game.source), one.slot == one.spy
        if spy and pd.notna(game.span_start):
            seen = read(game.source[: int(game.span_start)] + " " + game.source[int(game.span_end) :])
        hidden = {kind: value for kind, value in facts.items() if kind not in seen}
        counts = faults(read(one.output), seen, hidden)
        rows.append({"step": one.step, "role": "spy" if spy else "civilian", "votes": one.votes, **counts})
    table = pd.DataFrame(rows)
    table["part"] = table["step"] * PARTS // (table["step"].max() + 1) + 1
    sums = table.drop(columns="step").groupby(["role", "part"]).sum()
    return pd.DataFrame({
        "left out": sums["omitted"] / sums["seen"], "wrong": sums["wrong"] / sums["seen"],
        "hidden named": sums["invented"] / sums["hidden"], "hidden right": sums["guessed"] / sums["hidden"],
        "votes": sums["votes"] / table.groupby(["role", "part"]).size(),
    })  # fmt: skip


def _kind(word: str) -> str | None:
    if word.isdigit():
        return "amount" if int(word) <= LAST_AMOUNT else "year"
    return next((kind for kind, names in NAMES.items() if word in names), None)


if __name__ == "__main__":
    main()
