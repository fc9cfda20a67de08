"""`judgefree alpaca-eval NAME` and `judgefree arena-hard NAME`: answer, judge, score, publish reports/<benchmark>/NAME.

Answers lie sealed in `.work/answers/<key>/`, verdicts and figures in `.work/benchmarks/<key>/`; a key names all that they
are made from, so that a judge that could not be asked costs no second generation, and what is done asks nobody.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from judgefree.config_benchmarks import AlpacaEval, ArenaHard, Generation
from judgefree.config_judges import AnyJudge, JudgeSettings
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, code_hash, key_of, pretty_json, publish, read_json, seal, verify, write_atomic
from judgefree.judging.opening import identity, open_judge
from judgefree.pairwise_benchmarks.alpaca_data import BASELINE, load_benchmark
from judgefree.pairwise_benchmarks.alpaca_eval import score
from judgefree.pairwise_benchmarks.arena_data import load_prompts
from judgefree.pairwise_benchmarks.arena_hard import BASELINES, battles, by_category, score_category
from judgefree.pairwise_benchmarks.games import BOTH, conduct, drawn_order, play
from judgefree.pairwise_benchmarks.style import TERMS, controlled, style_terms

ANSWERS, ITEMS, GAMES, METRICS = "answers.parquet", "items.parquet", "games.parquet", "metrics.json"

_SOURCE = Path(__file__).parents[1]
_CODE = ("evaluation/loading.py", "evaluation/statistics.py", "data/sources.py", "devices.py", "episodes.py", "files.py",
         "judging", "pairwise_benchmarks", "prompting.py", "sampling")  # fmt: skip
_ANSWERING = (
    "evaluation/loading.py",
    "devices.py",
    "episodes.py",
    "pairwise_benchmarks/generate.py",
    "prompting.py",
    "sampling",
)


def alpaca_eval(name: str, root: Path) -> dict[str, float]:
    """Put models/<name> to AlpacaEval 2 as `resolved/alpaca_eval/<name>.json` says; publishes reports/alpaca-eval/<name>/:
    metrics.json, items.parquet (a row per instruction), games.parquet (a row per verdict). Returns the metrics.

    Raises JudgefreeError for a missing model or file, a judge that cannot be asked, and any row without a verdict.
    """
    resolved = read_json(root / "resolved" / "alpaca_eval" / f"{name}.json")
    settings, judge = AlpacaEval.model_validate(resolved["benchmark"]), _judge(resolved)
    benchmark = load_benchmark(settings, root)
    rows = pd.DataFrame({
        "id": [str(place) for place in range(len(benchmark.instructions))], "dataset": benchmark.datasets,
        "instruction": benchmark.instructions, "baseline_text": benchmark.baseline,
    })  # fmt: skip
    answers, facts = _answers(name, root, rows, settings.generation, resolved["threads"])
    facts |= {"benchmark": resolved["benchmark"], "baseline": BASELINE, "source": benchmark.facts,
              "judge": identity(judge, root), "texts": resolved.get("texts", {})}  # fmt: skip
    sealed = _place(root, facts)
    if not (sealed / MANIFEST).is_file():
        rows = rows.merge(answers, on="id", validate="one_to_one")
        orders = [BOTH if settings.orders == "both" else drawn_order(settings.seed, row) for row in range(len(rows))]
        games = play(open_judge(judge, facts["texts"], root), rows, orders)
        _all_judged(games, settings.judge)
        rows["preference"] = 1 + games.groupby("id", sort=False)["preference"].mean().loc[rows["id"]].to_numpy()
        metrics = {**score(rows, benchmark), **conduct(games), "truncated": _truncated(rows)}
        _seal(sealed, facts, {ITEMS: rows, GAMES: games}, metrics)
    return _publish(sealed, root / "reports" / "alpaca-eval" / name)


def arena_hard(name: str, root: Path) -> dict[str, float]:
    """Put models/<name> to Arena-Hard v2 as `resolved/arena_hard/<name>.json` says; publishes reports/arena-hard/<name>/
    with the files of `alpaca_eval`. Returns the metrics.

    Raises JudgefreeError for a missing model or file, a judge that cannot be asked, and a category without any verdicts.
    """
    resolved = read_json(root / "resolved" / "arena_hard" / f"{name}.json")
    settings, judge = ArenaHard.model_validate(resolved["benchmark"]), _judge(resolved)
    rows, source = load_prompts(settings, root)
    answers, facts = _answers(name, root, rows, settings.generation, resolved["threads"])
    facts |= {"benchmark": resolved["benchmark"], "baseline": {one: BASELINES[one] for one in settings.categories},
              "source": source, "judge": identity(judge, root), "texts": resolved.get("texts", {})}  # fmt: skip
    sealed = _place(root, facts)
    if not (sealed / MANIFEST).is_file():
        rows = rows.merge(answers, on="id", validate="one_to_one")
        games = pd.concat([
            play(open_judge(judge, facts["texts"].get(category, {}), root), part, [BOTH] * len(part))
            for category in settings.categories for part in [rows[rows["category"] == category]]
        ], ignore_index=True)  # fmt: skip
        scored = {}
        for category, part in rows.groupby("category"):
            played = games[games["id"].isin(part["id"])]
            scored[str(category)] = score_category(played, str(category), settings.seed)
            if settings.style:
                scored[str(category)] |= _style_controlled(played, part, settings.seed)
        metrics = {**by_category(scored, settings.categories), **conduct(games), "truncated": _truncated(rows)}
        _seal(sealed, facts, {ITEMS: rows, GAMES: games}, metrics)
    return _publish(sealed, root / "reports" / "arena-hard" / name)


def _all_judged(games: pd.DataFrame, judge: str) -> None:
    """AlpacaEval's rates are of all rows; Arena-Hard's own rule leaves prompts without verdicts out."""
    missing = games[games["verdict"].isna()]
    if len(missing):
        first = missing.iloc[0]
        raise JudgefreeError(
            f"judge {judge} gave no verdict in {len(missing)} of {len(games)} games, the first of row {first['id']}: "
            f"{first['said']}",
            "repeat the command: what was judged is kept and only the rest is asked again",
        )


def _style_controlled(games: pd.DataFrame, rows: pd.DataFrame, seed: int) -> dict[str, float]:
    values = style_terms(list(rows["text"]), list(rows["baseline_text"]))
    found = controlled(battles(games), pd.DataFrame(values, index=list(rows["id"]), columns=list(TERMS)), seed)
    return {"style_controlled": found.value, "style_controlled_low": found.low, "style_controlled_high": found.high}


def _judge(resolved: Mapping[str, Any]) -> AnyJudge:
    return TypeAdapter(JudgeSettings).validate_python(resolved["judge"])


def _truncated(rows: pd.DataFrame) -> float:
    return float((rows["finish_reason"] == "length").mean())


def _answers(
    name: str, root: Path, rows: pd.DataFrame, settings: Generation, threads: int
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The model's answers, generated where they are not there yet, and what they are made from."""
    model = root / "models" / name
    facts = {
        "model_sha256": key_of(read_json(model / MANIFEST)["files"]),
        "generation": settings.model_dump(mode="json", exclude_none=True), "threads": threads,
        "prompts_sha256": key_of(list(rows["id"]), list(rows["instruction"])),
        "answering_sha256": code_hash(_SOURCE / part for part in _ANSWERING),
    }  # fmt: skip
    sealed = root / ".work" / "answers" / key_of("answers", facts)
    if not (sealed / MANIFEST).is_file():
        import torch

        from judgefree.evaluation.loading import load_model
        from judgefree.pairwise_benchmarks.generate import generate

        verify(model)
        torch.set_num_threads(threads)
        loaded = load_model(model, settings.device or "cpu", settings.precision or "fp32", "the benchmark's device")
        _seal(sealed, facts, {ANSWERS: generate(*loaded, list(rows["id"]), list(rows["instruction"]), settings)})
    verify(sealed)
    return pd.read_parquet(sealed / ANSWERS), facts


def _place(root: Path, facts: dict[str, Any]) -> Path:
    """Where the result of these facts lies sealed; adds the code's hash and the key to them."""
    facts["code_sha256"] = code_hash(_SOURCE / part for part in _CODE)
    facts["key"] = key_of("benchmark", facts)
    return root / ".work" / "benchmarks" / facts["key"]


def _seal(
    folder: Path,
    facts: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    metrics: Mapping[str, float] | None = None,
) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for file, table in tables.items():
        write_atomic(partial / file, table.to_parquet(index=False))
    if metrics is not None:
        write_atomic(partial / METRICS, pretty_json(metrics))
    seal(partial, facts)
    publish(partial, folder)


def _publish(sealed: Path, target: Path) -> dict[str, float]:
    finished = sealed.with_name(f"report-{target.parent.name}-{target.name}")
    shutil.rmtree(finished, ignore_errors=True)
    for file in (*verify(sealed)["files"], MANIFEST):
        write_atomic(finished / file, (sealed / file).read_bytes())
    publish(finished, target)
    return dict(read_json(target / METRICS))
