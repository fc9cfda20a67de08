"""`judgefree pairwise NAME`: one pair of params.yaml, from two models' reports to reports/pairwise/NAME.

The verdicts lie sealed in `.work/pairwise/<key>/`, where the key names all that they are made from, so that a stage whose
inputs are as they were asks nobody, and needs neither key nor network.
"""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from judgefree.config import Compare
from judgefree.config_judges import JudgeSettings, Pair
from judgefree.data.heldout import load_test
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, code_hash, key_of, pretty_json, publish, read_json, seal, verify, write_atomic
from judgefree.judging.opening import identity, open_judge
from judgefree.judging.pairwise import measure, play

ITEMS, METRICS, TEST = "items.parquet", "metrics.json", "test.parquet"
FIELDS = ("id", "question", "answer", "text")

_SOURCE = Path(__file__).parents[1]
_CODE = (
    "judging",
    "data/heldout.py",
    "data/tables.py",
    "evaluation/loading.py",
    "evaluation/statistics.py",
    "sampling",
    "devices.py",
    "episodes.py",
    "files.py",
    "prompting.py",
)


def pairwise(name: str, root: Path) -> dict[str, float]:
    """Judge the texts of a pair's two models as `resolved/pairwise/<name>.json` says and publish
    `reports/pairwise/<name>/`: metrics.json, items.parquet, manifest.json. Returns the metrics.

    Raises JudgefreeError for reports or test items that are missing, damaged or do not belong together, for a judge that
    cannot be asked, and for too many rows without a verdict; MayPass where the judge does not answer at all.
    """
    resolved = read_json(root / "resolved" / "pairwise" / f"{name}.json")
    pair = Pair.model_validate(resolved["pair"])
    settings = TypeAdapter(JudgeSettings).validate_python(resolved["judge"])
    reports = {side: verify(root / "reports" / "runs" / side / pair.suite) for side in (pair.model, pair.against)}
    made_from = {
        "pair": resolved["pair"], "judge": identity(settings, root), "texts": resolved.get("texts", {}),
        "compare": resolved["compare"], "threads": resolved["threads"],
        "items_sha256": [reports[side]["files"][ITEMS]["sha256"] for side in (pair.model, pair.against)],
        "model_sha256": reports[pair.model]["model_sha256"], "test_sha256": _test_sha256(root, pair, reports),
        "code_sha256": code_hash(_SOURCE / part for part in _CODE),
    }  # fmt: skip
    key = key_of("pairwise", made_from)
    sealed = root / ".work" / "pairwise" / key
    if not (sealed / MANIFEST).is_file():
        rows = side_by_side(root, pair, root / "data" / reports[pair.model]["suite"]["dataset"])
        items = play(open_judge(settings, made_from["texts"], root), pair.judge, rows)
        metrics = measure(items, Compare.model_validate(resolved["compare"]))
        _seal(sealed, {"key": key, **made_from}, items, metrics)
    _publish(sealed, target := root / "reports" / "pairwise" / name)
    return dict(read_json(target / METRICS))


def side_by_side(root: Path, pair: Pair, data: Path) -> pd.DataFrame:
    """Test items with both models' texts: id, question, text, against_text; a text that a model did not give is empty.
    Questions are those of the data set in `data`: the reports show long ones by their beginning.

    Raises JudgefreeError naming the first item that one of them or the data set lacks, or that was asked otherwise.
    """
    ours, theirs = (
        pd.read_parquet(root / "reports" / "runs" / side / pair.suite / ITEMS, columns=list(FIELDS))
        for side in (pair.model, pair.against)
    )
    where = f"suite {pair.suite} of {pair.model} and of {pair.against}"
    fix = "run `dvc repro`: both have to be tested on the same items"
    if lacking := sorted(set(ours["id"]) ^ set(theirs["id"])):
        raise JudgefreeError(f"{where}: item {lacking[0]} is in one of them only", fix)
    both = ours.merge(theirs, on="id", suffixes=("", "_theirs"), validate="one_to_one")
    if len(other := both[both["question"] != both["question_theirs"]]):
        raise JudgefreeError(f"{where}: item {other['id'].iloc[0]} has two questions", fix)
    questions = {example.id: example.question for example in load_test(data)}
    if lacking := sorted(set(both["id"]) - set(questions)):
        raise JudgefreeError(f"{where}: item {lacking[0]} is not in the test split of {data}", fix)
    return pd.DataFrame({
        "id": both["id"], "question": both["id"].map(questions), "text": both[pair.field].fillna("").astype("str"),
        "against_text": both[f"{pair.field}_theirs"].fillna("").astype("str"),
    })  # fmt: skip


def _test_sha256(root: Path, pair: Pair, reports: dict[str, dict[str, Any]]) -> str:
    """Of the test split that both models were tested on. Raises JudgefreeError where data/ holds another one by now."""
    data = root / "data" / reports[pair.model]["suite"]["dataset"]
    present = read_json(data / MANIFEST)["files"].get(TEST, {}).get("sha256")
    for side in (pair.model, pair.against):
        if reports[side]["test_sha256"] != present:
            raise JudgefreeError(f"{data} is not what {side} was tested on in suite {pair.suite}", "run `dvc repro`")
    return str(present)


def _seal(folder: Path, facts: dict[str, Any], items: pd.DataFrame, metrics: dict[str, float]) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    write_atomic(partial / ITEMS, items.to_parquet(index=False))
    write_atomic(partial / METRICS, pretty_json(metrics))
    seal(partial, facts)
    publish(partial, folder)


def _publish(sealed: Path, target: Path) -> None:
    finished = sealed.with_name(f"report-{target.name}")
    shutil.rmtree(finished, ignore_errors=True)
    for file in (*verify(sealed)["files"], MANIFEST):
        write_atomic(finished / file, (sealed / file).read_bytes())
    publish(finished, target)
