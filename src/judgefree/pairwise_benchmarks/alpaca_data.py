"""What AlpacaEval 2 is made of: 805 instructions, the baseline's answers, difficulties, gamed rows.

They come from the hub at a pinned revision, from a folder in the same layout, or from the mirror. df_gamed.csv has
difficulties and gamed rows; where it is missing, both are estimated (difficulty.py) from public judgements of other models,
published weights and the leaderboard, and the result's facts say so.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from judgefree.config_benchmarks import AlpacaEval
from judgefree.errors import JudgefreeError
from judgefree.files import sha256_file
from judgefree.pairwise_benchmarks.difficulty import Published, estimate_difficulty, predicted_gamed_rows
from judgefree.pairwise_benchmarks.length_control import GAMED_BASELINES, GamedRows, Values, length_term
from judgefree.pairwise_benchmarks.places import folder_of

BASELINE = "gpt4_1106_preview"
GAMED = ("gpt4_1106_preview_verbose", "gpt4_1106_preview_concise")
# Of these the published files determine no rate: the baseline itself, one whose answers were made to deceive the judge, and
# one without published weights.
UNDETERMINED = (BASELINE, "gpt4_gamed", "text_davinci_003")

ANSWERS = ("alpaca_eval_gpt4_baseline.json", f"{BASELINE}/model_outputs.json")  # on the hub, in the mirror
GAMED_ROWS = "df_gamed.csv"
JUDGEMENTS = "leaderboard_preferences_gpt4_1106_baseline.npz"
WEIGHTS = f"weights/baseline_{BASELINE}.csv"
LEADERBOARD = "leaderboards/weighted_alpaca_eval_gpt4_turbo_leaderboard.csv"


@dataclass(frozen=True)
class Benchmark:
    """instructions, datasets and baseline: texts, in the official order; difficulty: of shape (items,). gamed: rows of the
    gamed baselines. facts: sha256 of the files read, and whether difficulties are `published` or `estimated`."""

    instructions: list[str]
    datasets: list[str]
    baseline: list[str]
    difficulty: Values
    gamed: GamedRows
    facts: dict[str, Any]


def load_benchmark(settings: AlpacaEval, root: Path) -> Benchmark:
    """The benchmark that the settings name. Raises JudgefreeError naming the file and row that is missing or malformed."""
    folder = folder_of(settings.id, settings.revision, [ANSWERS[0], GAMED_ROWS], "alpaca_eval", root)
    path = next((folder / name for name in ANSWERS if (folder / name).is_file()), None)
    if path is None:
        raise JudgefreeError(
            f"{folder} has neither {ANSWERS[0]} nor {ANSWERS[1]}", "add one, or correct alpaca_eval.id"
        )
    rows = _answers(path)
    baseline = [row["output"] for row in rows]
    if (folder / GAMED_ROWS).is_file():
        used, origin = [path, folder / GAMED_ROWS], "published"
        difficulty, gamed = read_gamed_rows(folder / GAMED_ROWS, len(rows))
    else:
        used, origin = [path, folder / JUDGEMENTS, folder / WEIGHTS, folder / LEADERBOARD], "estimated"
        difficulty = estimate_difficulty(read_published(folder))
        gamed = gamed_rows(folder, np.array([len(text) for text in baseline]), difficulty)
    if len(difficulty) != len(rows):
        raise JudgefreeError(
            f"{len(difficulty)} difficulties for {len(rows)} instructions in {folder}", "mend the files"
        )
    facts = {"difficulty": origin, "files": {file.relative_to(folder).as_posix(): sha256_file(file) for file in used}}
    return Benchmark(
        [row["instruction"] for row in rows],
        [row.get("dataset", "") for row in rows],
        baseline,
        difficulty,
        gamed,
        facts,
    )


def read_published(folder: Path, models: Sequence[str] | None = None) -> Published:
    """Public judgements, weights and rates of `models`; without them, of all that the files determine."""
    judged, lengths, baseline = read_judgements(folder / JUDGEMENTS)
    weights, board = _table(folder / WEIGHTS), _table(folder / LEADERBOARD)
    names = models if models is not None else [name for name in judged if name not in UNDETERMINED]
    for name in names:
        if name not in judged or name not in weights.index or name not in board.index:
            raise JudgefreeError(f"{name} has no judgements, weights or rate in {folder}", "leave the model out")
    return Published(
        np.array([judged[name] for name in names]),
        np.array([length_term(baseline, lengths[name]) for name in names]),
        weights.loc[list(names)].to_numpy(np.float64),
        board.loc[list(names), "length_controlled_winrate"].to_numpy(np.float64) / 100,
    )


def read_judgements(path: Path) -> tuple[dict[str, Values], dict[str, Values], Values]:
    """Preference for each model in [0, 1], lengths of its answers, and lengths of the baseline's, in characters."""
    if not path.is_file():
        raise JudgefreeError(f"{path} is missing", f"add it, or {GAMED_ROWS} in the folder above")
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["models"]]
        preferences = file["preference"].astype(np.float64) - 1
        return (
            dict(zip(names, preferences, strict=True)),
            dict(zip(names, file["len_output_2"].astype(np.float64), strict=True)),
            file["len_output_1"].astype(np.float64),
        )


def gamed_rows(folder: Path, baseline_length: Values, difficulty: Values) -> GamedRows:
    """Rows that the gamed baselines' published weights and lengths predict."""
    weights, board = _table(folder / WEIGHTS), _table(folder / LEADERBOARD)
    ratios = board.loc[list(GAMED), "avg_length"].to_numpy(np.float64) / baseline_length.mean()
    return predicted_gamed_rows(weights.loc[list(GAMED)].to_numpy(np.float64), ratios, baseline_length, difficulty)


def read_gamed_rows(path: Path, items: int) -> tuple[Values, GamedRows]:
    """Difficulties of shape (items,), and the gamed rows, of AlpacaEval's df_gamed.csv.

    Raises JudgefreeError naming the row that lacks a value or is there too often.
    """
    table = pd.read_csv(path)
    wanted = ["preference", "index", "std_delta_len", "instruction_difficulty"]
    if lacking := [name for name in wanted if name not in table.columns]:
        raise JudgefreeError(f"{path} has no column {lacking[0]}", "get the file again")
    values = table[wanted].to_numpy(np.float64)
    for place in np.flatnonzero(~np.isfinite(values).all(axis=1)):
        raise JudgefreeError(f"{path}: row {place} lacks a value", "get the file again")
    counts = table["index"].value_counts()
    for item in range(items):
        if (found := int(counts.get(item, 0))) != GAMED_BASELINES:
            raise JudgefreeError(
                f"{path}: instruction {item} has {found} rows and not {GAMED_BASELINES}", "get the file again"
            )
    if len(table) != GAMED_BASELINES * items:
        raise JudgefreeError(f"{path} has rows of more than {items} instructions", "use the files of one benchmark")
    first = table.drop_duplicates("index").sort_values("index")
    gamed = GamedRows(values[:, 0], np.tanh(values[:, 2]), values[:, 3])
    return first["instruction_difficulty"].to_numpy(np.float64), gamed


def _answers(path: Path) -> list[Mapping[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise JudgefreeError(f"{path} is not valid JSON: {error}", "get the file again") from error
    if not isinstance(rows, list) or not rows:
        raise JudgefreeError(f"{path} holds no list of answers", "get the file again")
    for place, row in enumerate(rows):
        for key in ("instruction", "output"):
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                raise JudgefreeError(f"{path}: row {place} has no text {key!r}", "get the file again")
    return rows


def _table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, index_col=0)
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise JudgefreeError(f"{path} cannot be read: {error}", f"get it again, or add {GAMED_ROWS}") from error
