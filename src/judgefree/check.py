"""`judgefree check` and `judgefree resolve`: params.yaml read, refused or explained, and cut into one file per stage."""

import shutil
from pathlib import Path

from judgefree.errors import JudgefreeError
from judgefree.files import pretty_json, publish, write_atomic
from judgefree.methods import GRADED, SFT, TEXTS, options_of
from judgefree.params import Params, load_params, resolve
from judgefree.texts import JUDGE_TEXTS, RETRY_TEXTS, check_texts, read_texts


def checked(path: Path) -> Params:
    """Settings that every part accepts, the methods' own options and prompt files included. Raises JudgefreeError."""
    params = load_params(path)
    for name, run in params.runs.items():
        key, options = run.path(name), options_of(name, run)
        if run.method in GRADED and params.prompts[run.dataset].measure:
            raise JudgefreeError(
                f"{key}.method: {run.method} rewards answers that are values, and those of {run.dataset} are texts",
                "use method: spyrl or rubric, or another data set",
            )
        if run.method in TEXTS:
            texts = read_texts(path.parent, options.prompts, f"{key}.options.prompts")
            check_texts(texts, TEXTS[run.method], str(path.parent / options.prompts))
        if run.method == SFT:
            try:
                params.training_of(name).micro_batch_of(options.batch_size)
            except JudgefreeError as error:
                raise JudgefreeError(f"{key}.{error.problem}", error.fix) from error
    for name, suite in params.suites.items():
        if suite.prompt_file:
            key, file = suite.prompt_file
            texts = read_texts(path.parent, file, f"suites.{name}.{key}")
            wanted = RETRY_TEXTS[suite.retry.procedure] if suite.retry else TEXTS["spyrl"]
            check_texts(texts, wanted, str(path.parent / file))
    for name, pair in params.pairs.items():
        if pair.prompts:
            texts = read_texts(path.parent, pair.prompts, f"pairs.{name}.prompts")
            check_texts(texts, JUDGE_TEXTS, str(path.parent / pair.prompts))
    for section, benchmark in (("alpaca_eval", params.alpaca_eval), ("arena_hard", params.arena_hard)):
        prompts = benchmark.prompts if benchmark else None
        for file in [prompts] if isinstance(prompts, str) else (prompts or {}).values():
            check_texts(read_texts(path.parent, file, f"{section}.prompts"), JUDGE_TEXTS, str(path.parent / file))
    return params


def check_params(path: Path, quiet: bool) -> None:
    """Print the settings as they take effect, stage by stage; with `quiet` the last line only.

    Raises JudgefreeError for settings that are refused, and where a source outside the project is no longer what was
    read: DVC does not look there and would take the old result for the present one.
    """
    from judgefree.outside import replaced  # here, since `resolve` does without

    params = checked(path)
    for name, content in resolve(params, path.parent).items():
        if not quiet:
            print(f"# {name}\n{pretty_json(content)}")
    if changed := dict(replaced(params, path.parent)):
        raise JudgefreeError(
            "; ".join(f"{file} is not what {stage} read" for stage, file in changed.items()),
            f"run `dvc repro --force --single-item {' '.join(changed)}`, then `dvc repro`; or put the file back",
        )
    print(f"{path}: {_summary(params)}: all right")


def _summary(params: Params) -> str:
    chains = [" <- ".join(params.ancestry(name)) for name in params.runs]
    chains = [f"{chain}, with {' <- '.join(params.reward_ancestry(name)[1:])}" if name in params.save_runs else chain
              for name, chain in zip(params.runs, chains, strict=True)]  # fmt: skip
    parts = [
        f"{len(params.bases)} bases",
        f"{len(params.data)} data sets",
        f"{len(params.runs)} runs ({'; '.join(chains)})",
    ]
    if params.reward_models:
        made = [" <- ".join([name, *params.ancestry(one.start_from)]) for name, one in params.reward_models.items()]
        parts.append(f"{len(made)} reward models ({'; '.join(made)})")
    if (judged := params.reward_benchmarks) and judged.models:
        parts.append(f"{', '.join(judged.models)} judged by {', '.join(judged.sets)}")
    return ", ".join([*parts, f"{len(params.suites)} suites"])


def write_resolved(root: Path) -> None:
    files = resolve(checked(root / "params.yaml"), root)
    fresh = root / ".work" / "resolved"
    shutil.rmtree(fresh, ignore_errors=True)
    for name, content in files.items():
        write_atomic(fresh / name, pretty_json(content))
    publish(fresh, root / "resolved")
