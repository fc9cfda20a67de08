"""A judge from its settings, and what its answers depend on."""

from pathlib import Path
from typing import Any

from judgefree.config_judges import AnyJudge, EndpointJudge, PolicyJudge, RewardModelJudge
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, listing, read_json
from judgefree.judging.judges import Judge


def open_judge(settings: AnyJudge, texts: dict[str, str], root: Path) -> Judge:
    """A judge that is ready to be asked.

    texts: those of the prompt file (texts.JUDGE_TEXTS), none for a reward model; root: the project's folder. Raises
    JudgefreeError for a key that is not set, or a model that is not there.
    """
    match settings:
        case EndpointJudge():
            from judgefree.judging.endpoint import endpoint_judge

            return endpoint_judge(settings, texts, root)
        case PolicyJudge():
            from judgefree.judging.local import policy_judge

            return policy_judge(settings, texts, root)
        case RewardModelJudge():
            from judgefree.judging.local import RewardModel

            return RewardModel(settings, root)


def identity(settings: AnyJudge, root: Path) -> dict[str, Any]:
    """All that a judge's answers and their price depend on, for a result's key: without a server's time-outs, with the
    content of a local model. Raises JudgefreeError for a model that is not there."""
    plain = settings.model_dump(mode="json", exclude_none=True)
    if isinstance(settings, EndpointJudge):
        return {key: plain[key] for key in ("kind", "url", "model", "request", "price") if key in plain}
    folder = root / (f"models/{settings.model}" if isinstance(settings, PolicyJudge) else settings.folder)
    if not folder.is_dir():
        raise JudgefreeError(
            f"the judge's model {folder} is not there", "run `dvc repro`, or correct the judge's settings"
        )
    files = read_json(folder / MANIFEST)["files"] if (folder / MANIFEST).is_file() else listing(folder)
    return {**plain, "files": files}
