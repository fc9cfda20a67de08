"""The `judgefree` command. Every stage of dvc.yaml is one of its subcommands; heavy imports wait until one is chosen."""

import errno
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from judgefree.errors import JudgefreeError, MayPass

app = typer.Typer(
    help="Train language models that improve themselves, without a paid judge and without new human labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

ROOT = Path(".")
Name = Annotated[str, typer.Argument(help="A name from params.yaml.")]


@app.command()
def check(
    quiet: Annotated[bool, typer.Option("--quiet", help="Only say whether all is right.")] = False,
) -> None:
    """Check params.yaml and print what it resolves to.

    Example: judgefree check
    """
    from judgefree.check import check_params

    check_params(ROOT / "params.yaml", quiet)


@app.command()
def profile(
    name: Annotated[str, typer.Argument(help="A file of profiles/, without .yaml. Without it: list them.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an edited params.yaml (a backup is kept).")] = False,
) -> None:
    """Make params.yaml from a profile.

    Example: judgefree profile smollm2
    """
    from judgefree.profiles import list_profiles, write_profile

    print(write_profile(ROOT, name, force) if name else list_profiles(ROOT))


@app.command()
def resolve() -> None:
    """Write resolved/: what every stage is run with. DVC calls this; a changed file there is what makes a stage stale.

    Example: judgefree resolve
    """
    from judgefree.check import write_resolved

    write_resolved(ROOT)


@app.command()
def base(name: Name) -> None:
    """Make models/NAME, a base model, as params.yaml describes it.

    Example: judgefree base tiny
    """
    from judgefree.bases.build import build_base
    from judgefree.files import MANIFEST, read_json

    folder = build_base(name, _resolved("base", name), ROOT)
    print(f"{name}: {read_json(folder / MANIFEST)['parameters']:,} parameters in {folder}")


@app.command()
def prepare(name: Name) -> None:
    """Make data/NAME: read, check, hold out, quarantine.

    Example: judgefree prepare arithmetic
    """
    from judgefree.data.prepare import prepare as prepare_data
    from judgefree.files import MANIFEST, read_json

    prepare_data(name, _resolved("data", name), ROOT)
    facts = read_json(ROOT / "data" / name / MANIFEST)
    rows = ", ".join(f"{split} {count:,}" for split, count in facts["rows"].items())
    reasons = ", ".join(f"{count} {reason}" for reason, count in facts["quarantined"].items()) or "none"
    print(f"{name}: rows {rows}; quarantined: {reasons}")


@app.command()
def train(name: Name) -> None:
    """Train a run, or go on with it after a stop; makes models/NAME.

    Where an MLflow store is there (`judgefree sync` and `make ui` make one), metrics are logged at every checkpoint.

    Example: judgefree train rlvr
    """
    settings = _resolved("train", name)
    _threads(settings)
    from judgefree.registry.live import LiveLog
    from judgefree.registry.place import database
    from judgefree.training.launch import launch

    launch(name, ROOT, settings, LiveLog if database(ROOT).exists() else None)


@app.command("reward-model")
def reward_model(name: Name) -> None:
    """Make models/NAME, a value-anchored reward model: trained on preference pairs, its values fitted to a policy.

    Example: judgefree reward-model judge
    """
    _threads(_resolved("reward_model", name))
    from judgefree.files import MANIFEST, read_json
    from judgefree.reward_training.build import build_reward_model

    facts = read_json(build_reward_model(name, ROOT) / MANIFEST)
    print(f"{name}: {facts['pair_accuracy']:.1%} of held-out pairs right; values miss the mean reward of a prompt by "
          f"{facts['value_error']:.3f} (one value for all: {facts['value_error_of_mean']:.3f})")  # fmt: skip


@app.command()
def pin() -> None:
    """Write plan/: each model's evaluations with the content of their test splits, so that DVC re-evaluates no more
    than it must.

    Example: judgefree pin
    """
    from judgefree.evaluation.stage import pin as pin_evaluations

    pin_evaluations(ROOT)


@app.command()
def evaluate(name: Name) -> None:
    """Evaluate a base or a run on its suites; makes reports/runs/NAME.

    Example: judgefree evaluate rlvr
    """
    _threads(_resolved("evaluate", name))
    from judgefree.evaluation.stage import evaluate as evaluate_model

    evaluate_model(name, ROOT)


@app.command()
def compare() -> None:
    """Compare all models of params.yaml; makes reports/compare, which `judgefree table` prints.

    Example: judgefree compare
    """
    from judgefree.evaluation.compare import compare as compare_models

    compare_models(ROOT)
    print("compared in reports/compare; `judgefree table` prints it")


@app.command()
def pairwise(name: Name) -> None:
    """Let a judge compare two models' texts, as `pairs` of params.yaml says; makes reports/pairwise/NAME.

    Example: judgefree pairwise story-by-gpt
    """
    _threads(_resolved("pairwise", name))
    from judgefree.judging.stage import pairwise as judge_pair

    found = judge_pair(name, ROOT)
    print(f"{name}: win rate {found['win_rate']:.1%} of {found['items']} items; {found['wins']} wins, {found['ties']} ties, "
          f"{found['losses']} losses; answers worth {found['cost']:.4f} in reports/pairwise/{name}")  # fmt: skip


@app.command()
def alpaca_eval(name: Name) -> None:
    """Put a model to AlpacaEval 2, as `alpaca_eval` of params.yaml says; makes reports/alpaca-eval/NAME.

    Example: judgefree alpaca-eval rlvr
    """
    _threads(_resolved("alpaca_eval", name))
    from judgefree.pairwise_benchmarks.stage import alpaca_eval as evaluate_model

    found = evaluate_model(name, ROOT)
    print(f"{name}: win rate {found['win_rate']:.1%}, length-controlled {found['length_controlled']:.1%} of "
          f"{found['items']} instructions in reports/alpaca-eval/{name}")  # fmt: skip


@app.command()
def arena_hard(name: Name) -> None:
    """Put a model to Arena-Hard v2, as `arena_hard` of params.yaml says; makes reports/arena-hard/NAME.

    Example: judgefree arena-hard rlvr
    """
    _threads(_resolved("arena_hard", name))
    from judgefree.pairwise_benchmarks.stage import arena_hard as evaluate_model

    found = evaluate_model(name, ROOT)
    print(f"{name}: win rate {found['win_rate']:.1%} in reports/arena-hard/{name}")


@app.command()
def table() -> None:
    """Print the comparison that reports/compare holds.

    Example: judgefree table
    """
    from judgefree.evaluation.tables import models_shown, print_table
    from judgefree.params import load_params

    print_table(ROOT)
    params = load_params(ROOT / "params.yaml")
    tested = {name for name, model in {**params.bases, **params.runs}.items() if model.suites}
    if models_shown(ROOT) != tested:
        print("\nparams.yaml has other models than this table: run `dvc repro`")


@app.command()
def transcript(
    name: Name,
    games: Annotated[int, typer.Option("--games", min=1, help="How many games, or groups of attempts, to show.")] = 40,
    steps: Annotated[str, typer.Option("--steps", help="Only of these steps, like 0-20,35.")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Write the page to this file instead.")] = None,
) -> None:
    """Make a page of what a run wrote and what it was paid for it: reports/transcripts/NAME.html.

    It works while the run trains, too. The page is one file; open it in a browser or send it to somebody.

    Example: judgefree transcript spyrl --games 60 --steps 0-20
    """
    from judgefree.registry.transcript import write_transcript

    print(write_transcript(ROOT, name, games, steps, out))


@app.command()
def reward_bench(
    model: Annotated[str, typer.Argument(help="A model in models/ (a run's own reward model), or a folder.")],
) -> None:
    """Judge a reward model by the benchmarks of params.yaml; makes reports/reward-bench/MODEL.

    Example: judgefree reward-bench judge
    """
    from judgefree.reward_benchmarks.stage import TABLE, settings_of
    from judgefree.reward_benchmarks.stage import reward_bench as judge

    settings, threads = settings_of(model, ROOT)
    _threads({"threads": threads})
    report = judge(model, settings, threads, ROOT)
    print((report / TABLE).read_text(encoding="utf-8"), end="")


@app.command()
def sync() -> None:
    """Make MLflow show every model that is here, e.g. after `dvc pull`. Repeating it changes nothing.

    Example: judgefree sync
    """
    from judgefree.registry.sync import sync as sync_models

    done = sync_models(ROOT)
    logged = [name for name, what in done.items() if what == "logged"]
    print(f"{len(done)} models in MLflow; logged now: {', '.join(logged) or 'none'}")


@app.command()
def register(
    task: Annotated[str, typer.Argument(help="A data set that runs or judged reward models are trained on.")],
    ledger: Annotated[Path | None, typer.Option("--ledger", help="Write the verdicts to this file too.")] = None,
    only: Annotated[
        Literal["policies", "reward-models"] | None,
        typer.Option("--only", help="One of both, where the task has both."),
    ] = None,
) -> None:
    """Register the best run of a task, and make it champion if the gates of params.yaml let it. Where params.yaml has
    reward_gates, the best reward model judged by reward_benchmarks as well, as TASK-reward-model.

    Example: judgefree register arithmetic
    """
    from judgefree.files import write_atomic
    from judgefree.params import load_params
    from judgefree.registry.kinds import untested_runs
    from judgefree.registry.register import register_task

    verdicts = []
    for verdict in register_task(ROOT, task, only):
        verdicts.append(verdict.markdown())
        print(verdicts[-1], end="", flush=True)
        if ledger:
            write_atomic(ledger, "\n".join(verdicts))
    if verdicts and only is None and (untested := untested_runs(load_params(ROOT / "params.yaml"), task)):
        print(f"\npolicies: no suite tests {task}, so none is registered ({', '.join(untested)})")


@app.command()
def rollback(
    task: Annotated[str, typer.Argument(help="A data set whose champion is to go, or DATA-reward-model.")],
) -> None:
    """Give the alias champion back to the version that had it before; after the first promotion, take it away.

    Example: judgefree rollback arithmetic
    """
    from judgefree.registry.register import rollback as roll_back

    done = roll_back(ROOT, task)
    champion = "has no champion now" if done.now is None else f"champion is version {done.now} again"
    print(f"{task}: {champion}; version {done.was} will not be promoted any more")


@app.command()
def runs() -> None:
    """List every run and reward model of params.yaml with its state.

    Example: judgefree runs
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from judgefree.registry.states import run_states

    listed = Table("run", "method", "data", "seed", "state", box=box.SIMPLE_HEAD, pad_edge=False)
    listed.add_column(overflow="fold")
    for run in run_states(ROOT):
        listed.add_row(run.name, run.method, run.dataset, str(run.seed), run.state, run.detail)
    Console().print(listed)


@app.command()
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended without losing anything.")] = False,
) -> None:
    """Look for what is wrong: versions, MLflow's store, locks, disk, half-written work. Ends with 1 if anything is.

    Example: judgefree doctor --fix
    """
    from judgefree.places import require_clone
    from judgefree.registry import doctor as checks

    require_clone(ROOT)
    for done in checks.fix(ROOT) if fix else []:
        print(f"mended: {done}")
    findings = checks.examine(ROOT)
    for finding in findings:
        print(f"{finding.problem}\n  {'fix' if finding.fault else 'if you want'}: {finding.command}")
    if any(finding.fault for finding in findings):
        raise SystemExit(1)
    print("nothing is wrong" if findings else "all is well")


def _resolved(kind: str, name: str) -> dict[str, Any]:
    from judgefree.files import read_json

    folder = ROOT / "resolved" / kind
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.json"))) or "none"
        raise JudgefreeError(
            f"no {name!r} among the resolved settings for `{kind}` (known: {known})",
            "run `judgefree resolve` (or `dvc repro`) if params.yaml has it; otherwise add it there first",
        )
    return dict(read_json(path))


def _threads(settings: dict[str, Any]) -> None:
    """Before torch is imported: OpenMP reads its environment once."""
    os.environ["OMP_NUM_THREADS"] = str(settings["threads"])


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        app()
    except JudgefreeError as error:
        print(f"judgefree: {error}", file=sys.stderr)
        raise SystemExit(os.EX_TEMPFAIL if isinstance(error, MayPass) else 2) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        print(f"judgefree: {error}\n  fix: free disk space or make the folder writable, then repeat", file=sys.stderr)
        raise SystemExit(2) from None
