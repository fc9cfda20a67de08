"""`judgefree evaluate NAME`: every suite of one model, as files.

Each suite's result lies sealed in `.work/evaluate/<key>/`, where the key names all it is made from. A stage that was
killed, or whose list of suites changed, computes only what is not there, and if nothing is missing it neither loads
the model nor imports torch. What is published is `reports/runs/<name>/` in one rename.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgefree import config
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, code_hash, key_of, pretty_json, publish, read_json, seal, verify, write_atomic

if TYPE_CHECKING:
    from judgefree.episodes import Example

ITEMS, METRICS, HISTORY, TRAINING, TEST = (
    "items.parquet", "metrics.json", "history.parquet", "training.json", "test.parquet",
)  # fmt: skip
GAMES, VOTES = "games.parquet", "votes.png"  # of a suite with `game`: the games, and votes by quality rank

_SOURCE = Path(__file__).parents[1]
_CODE = (
    "evaluation/alignment.py", "evaluation/completions.py", "evaluation/games.py", "evaluation/loading.py",
    "evaluation/maths.py", "evaluation/measures.py", "evaluation/plots.py", "evaluation/retry.py",
    "evaluation/statistics.py", "evaluation/suites.py", "evaluation/summaries.py", "sampling", "scoring", "rlsvr",
    "advantages.py", "data/heldout.py", "data/tables.py", "devices.py", "episodes.py", "files.py", "prompting.py",
)  # fmt: skip
_TRAINING_FACTS = ("method", "seed", "select", "steps", "selected_step", "status", "collapse")


def pin(root: Path) -> None:
    """Write `plan/<model>.json` for every model: its resolved evaluation settings and, for each data set it is tested
    on, the sha256 of the test split.

    The evaluate stages depend on these small files, so that DVC evaluates a model again only when one of its own
    suites or their test items changed, and not when a training split did.

    Raises JudgefreeError when a data set is not prepared or has no test split.
    """
    source, target = root / "resolved" / "evaluate", root / "plan"
    plans = {path.name: read_json(path) for path in sorted(source.glob("*.json"))}
    if not plans:
        raise JudgefreeError(f"{source} holds no settings", "run `dvc repro` from the project's folder")
    for name, plan in plans.items():
        hashes = {dataset: _test_sha256(root / "data" / dataset) for dataset in sorted(plan["prompts"])}
        write_atomic(target / name, pretty_json({**plan, "test_sha256": hashes}))
    for path in target.glob("*.json"):
        if path.name not in plans:
            path.unlink()


def evaluate(name: str, root: Path) -> None:
    """Evaluate `models/<name>` on its suites as `plan/<name>.json` says and publish `reports/runs/<name>/`: for each
    suite metrics.json and items.parquet, and of a trained run history.parquet and training.json.

    Raises JudgefreeError for a missing or damaged model, plan or test split.
    """
    plan = read_json(root / "plan" / f"{name}.json")
    model = root / "models" / name
    model_sha256 = key_of(read_json(model / MANIFEST)["files"])
    facts = {suite: _facts(plan, suite, model_sha256) for suite in plan["suites"]}
    sealed = {suite: root / ".work" / "evaluate" / facts[suite]["key"] for suite in facts}
    missing = {suite: facts[suite] for suite in facts if not (sealed[suite] / MANIFEST).is_file()}
    if missing:
        _compute(name, root, missing, sealed)
    _publish(name, root, sealed)


def _facts(plan: Mapping[str, Any], suite: str, model_sha256: str) -> dict[str, Any]:
    """All that a suite's result is made from, and the key that names it."""
    settings = plan["suites"][suite]
    facts = {
        "model_sha256": model_sha256,
        "suite": settings,
        "prompt": plan["prompts"][settings["dataset"]],
        "test_sha256": plan["test_sha256"][settings["dataset"]],
        "grading_timeout_s": plan["grading"]["timeout_s"],
        "threads": plan["threads"],
        "code_sha256": code_hash(_SOURCE / part for part in _CODE),
        **({"texts": plan["texts"][suite]} if suite in plan.get("texts", {}) else {}),
    }
    return {"key": key_of(facts), **facts}


def _compute(name: str, root: Path, missing: Mapping[str, Mapping[str, Any]], sealed: Mapping[str, Path]) -> None:
    import torch
    from rich.console import Console

    from judgefree.data.heldout import load_test
    from judgefree.evaluation.loading import load_model
    from judgefree.evaluation.maths import UNGRADED_LIMIT
    from judgefree.evaluation.measures import MEASURES
    from judgefree.scoring.grader import Grader

    console = Console(stderr=True)
    plan = read_json(root / "plan" / f"{name}.json")
    model_folder = root / "models" / name
    verify(model_folder)
    torch.set_num_threads(plan["threads"])
    loaded: dict[tuple[str, str], tuple[Any, Any]] = {}
    with Grader(**plan["grading"]) as grader:
        for suite_name, facts in missing.items():
            suite = config.Suite.model_validate(facts["suite"])
            test = root / "data" / suite.dataset
            if _test_sha256(test) != facts["test_sha256"]:
                raise JudgefreeError(f"{test} is not the data set that plan/{name}.json names", "run `dvc repro`")
            place = (suite.device or "cpu", suite.precision or "fp32")
            if place not in loaded:
                loaded = {place: load_model(model_folder, *place, f"suites.{suite_name}.device")}
            console.print(f"{name} on {suite_name} ...")
            prompt = config.PromptFormat.model_validate(facts["prompt"])
            files, metrics = _results(
                *loaded[place], load_test(test, suite.items), suite, prompt, grader, facts.get("texts", {})
            )
            if max(metrics.get(name, 0.0) for name in ("ungraded", "sampled/ungraded")) > UNGRADED_LIMIT:
                console.print(
                    f"[yellow]{name} on {suite_name}: the grader gave up on more than {UNGRADED_LIMIT:.0%} of the "
                    "completions, which count as not correct; raise grading.timeout_s"
                )
            _seal(sealed[suite_name], facts, {**files, METRICS: pretty_json(metrics)})
            measure = next(measure for measure in MEASURES if measure in metrics)
            console.print(f"{name} on {suite_name}: {measure} {metrics[measure]:.1%} of {metrics['items']:g} items")


def _results(
    model: Any,
    tokenizer: Any,
    examples: "Sequence[Example]",
    suite: config.Suite,
    prompt: config.PromptFormat,
    grader: Any,
    texts: Mapping[str, str],
) -> tuple[dict[str, bytes], dict[str, float]]:
    """The suite's files by name, but for the metrics, which stand beside them."""
    from judgefree.evaluation.suites import run_suite

    items, metrics = run_suite(model, tokenizer, examples, suite, prompt, grader, texts)
    files = {ITEMS: items.to_parquet(index=False)}
    if suite.game:
        from judgefree.evaluation.games import play_games
        from judgefree.scoring.rouge import rouge_of

        def quality(outputs: Sequence[tuple[str | None, Sequence[str]]]) -> list[float]:
            return [scores["rouge_l"] for scores in rouge_of(outputs, grader.workers)]

        games, votes, figure = play_games(model, tokenizer, examples, suite, prompt, texts, quality)
        files |= {GAMES: games.to_parquet(index=False), VOTES: figure}
        metrics |= votes
    return files, metrics


def _seal(folder: Path, facts: Mapping[str, Any], files: Mapping[str, bytes | str]) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name, content in files.items():
        write_atomic(partial / name, content)
    seal(partial, facts)
    publish(partial, folder)


def _publish(name: str, root: Path, sealed: Mapping[str, Path]) -> None:
    finished = root / ".work" / "evaluate" / f"report-{name}"
    shutil.rmtree(finished, ignore_errors=True)
    for suite, folder in sealed.items():
        for file in (*verify(folder)["files"], MANIFEST):
            write_atomic(finished / suite / file, (folder / file).read_bytes())
    model = root / "models" / name
    if (model / HISTORY).is_file():
        write_atomic(finished / HISTORY, (model / HISTORY).read_bytes())
        manifest = read_json(model / MANIFEST)
        write_atomic(
            finished / TRAINING, pretty_json({key: manifest[key] for key in _TRAINING_FACTS if key in manifest})
        )
    seal(finished, {"model": name})
    publish(finished, root / "reports" / "runs" / name)


def _test_sha256(folder: Path) -> str:
    """Of the test split, as its data set's manifest says; `load_test` checks the file against it."""
    files = read_json(folder / MANIFEST)["files"]
    if TEST not in files:
        raise JudgefreeError(f"{folder} has no {TEST}", "take its suites from params.yaml or use a data set with one")
    return files[TEST]["sha256"]
