"""A run's transcript page (transcripts/) from wherever its records are: models/, or .work/ while it trains."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, sha256_file, write_atomic
from judgefree.registry.facts import ModelFacts, read_model, read_training
from judgefree.transcripts.page import page
from judgefree.transcripts.records import parse_steps, read_short, read_whole, spread

GAMES = 40  # of a page, unless told otherwise


def write_transcript(root: Path, name: str, games: int = GAMES, steps: str = "", target: Path | None = None) -> Path:
    """Make the page of a run that is trained or being trained, at `target` or reports/transcripts/<name>.html.

    Raises JudgefreeError for a run without records and for steps that cannot be read or that it has no records of.
    """
    model, files = _find(root, name)
    target = target or root / "reports" / "transcripts" / f"{name}.html"
    write_atomic(target, transcript(root, model, files, games, parse_steps(steps)))
    return target


def transcript(
    root: Path, model: ModelFacts, files: Sequence[Path], games: int = GAMES, steps: Sequence[range] = ()
) -> str:
    """The page of at most `games` games, or groups, out of these records files. Raises JudgefreeError for none."""
    short = read_short(files, steps)
    if not short:
        raise JudgefreeError(f"{model.name} has no records of these steps", "leave out --steps, or name others")
    chosen = read_whole(files, spread(short, games))
    recorded = [step for step, _ in short]
    facts = {
        "method": model.method, "data": model.dataset, "start": model.start_from, "seed": model.seed, "status": model.status,
        "steps": f"{min(recorded)} to {max(recorded)}", "completions": f"{sum(map(len, short.values())):,}",
    }  # fmt: skip
    questions = questions_of(root, model, {prompt_id for _, prompt_id in chosen})
    overseer = model.settings.get("run", {}).get("options", {}).get("detectors") == "overseer"
    return page(f"Transcript of {model.name}", facts, short, chosen, questions, overseer)


def questions_of(root: Path, model: ModelFacts, ids: Iterable[str] | None = None) -> dict[str, str]:
    """Question by id of the training rows (of those named, or all), where data/ still holds those that the model was
    trained on."""
    path = root / "data" / str(model.dataset) / "train.parquet"
    if not path.is_file() or sha256_file(path) != model.data_sha256.get("train.parquet"):
        return {}
    filters = None if ids is None else [("id", "in", sorted(ids))]
    return {
        row["id"]: row["question"]
        for row in pq.read_table(path, columns=["id", "question"], filters=filters).to_pylist()
    }


def _find(root: Path, name: str) -> tuple[ModelFacts, list[Path]]:
    """What is known of the run, and its records files: those of a training that goes on now before those of the model that
    it will replace."""
    published = read_model(root, name) if (root / "models" / name / MANIFEST).is_file() else None
    key = _training_key(root, name)
    if key and (published is None or published.key != key) and (files := records_of(root / ".work" / "train" / key)):
        return read_training(root, name, key), files
    if published is None:
        raise JudgefreeError(f"{name} has neither a model in models/ nor records in .work/",
                             "name a run that `judgefree runs` lists as trained or in progress")  # fmt: skip
    if not (files := records_of(root / "models" / name)):
        raise JudgefreeError(f"models/{name} has no records",
                             "name a run of another method; bases and sft keep no completions")  # fmt: skip
    return published, files


def _training_key(root: Path, name: str) -> str | None:
    """The key of the run as it is resolved now; None where nothing is being trained or that cannot be told."""
    if not (root / ".work" / "train").is_dir() or not (root / "resolved" / "train" / f"{name}.json").is_file():
        return None
    from judgefree.training.run import read_job  # torch takes seconds to import

    try:
        return read_job(name, root).key
    except JudgefreeError:  # an input of it is gone; what it once made may still be shown
        return None


def records_of(folder: Path) -> list[Path]:
    """The records files of a model's folder or of a training's, in order of step."""
    return sorted((folder / "records").glob("*.parquet"))
