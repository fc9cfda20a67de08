"""`make reproduce`: the papers' claims at small scale, several seeds an arm, outside DVC.

profiles/reproduce.yaml has one run per arm (`--profile reproduce-save`: the one of SAVE, ten seeds an arm); SAVE_SEEDS,
MAIN_SEEDS and OTHER_SEEDS say how often each is repeated, with seeds 0, 1, 2, ... from the same warm-up. Everything is
made in `.work/<profile>`, two trainings at a time. What is finished is not made again and what was cut off goes on from
its last checkpoint, so the same command continues after any stop. At the end the claims are judged (claims.py,
save_claims.py), the profile's sections of docs/results.md and their plots are written (results_page.py, save_results.py),
and all runs stand in one MLflow store: `mlflow ui --backend-store-uri sqlite:///.work/reproduce/mlruns/mlflow.db`.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, read_json
from judgefree.params import load_params

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "profiles" / "reproduce.yaml"
SAVE_PROFILE = ROOT / "profiles" / "reproduce-save.yaml"
SAVE_SEEDS, MAIN_SEEDS, OTHER_SEEDS = 10, 5, 3
MAIN_ARMS = (
    "grpo", "intuitor", "cluster", "multi", "multi-kl-cov", "rlvr-orders", "srrl", "spyrl", "spyrl-no-baseline",
    "spyrl-joint", "spyrl-performing", "spyrl-detection", "spyrl-no-spy", "spyrl-3-players", "spyrl-paper-schedule",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="trainings at a time (default: 2)")
    parser.add_argument("--arms", nargs="*", help="only these arms; the page then goes into the work folder")
    parser.add_argument("--profile", default=PROFILE.stem, choices=[PROFILE.stem, SAVE_PROFILE.stem],
                        help="whose arms (default: reproduce)")  # fmt: skip
    parser.add_argument("--work", type=Path, help="where the models are made (default: .work/<profile>)")
    parser.add_argument("--page-only", action="store_true", help="judge what is there and write the page")
    options = parser.parse_args()
    work = options.work or ROOT / ".work" / options.profile
    signal.signal(signal.SIGTERM, stop)
    try:
        project = write_project(work, options.arms, ROOT / "profiles" / f"{options.profile}.yaml")
        if not options.page_only:
            make_all(work, project, options.processes)
        from benchmarks.results_page import write_page
        from benchmarks.save_results import write_section

        write = write_section if options.profile == SAVE_PROFILE.stem else write_page
        write(work, work if options.arms else ROOT / "docs")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from there")
    except JudgefreeError as error:
        sys.exit(f"{error.problem}\n  fix: {error.fix}")


def stop(number: int, frame: Any) -> None:
    """A request to end goes on to the stages that run, which save what they have, as Ctrl-C reaches all by itself."""
    for child in psutil.Process().children():
        child.terminate()
    raise KeyboardInterrupt


def write_project(work: Path, arms: list[str] | None, profile: Path = PROFILE) -> dict[str, Any]:
    """params.yaml of the reproduction: every chosen arm once per seed, and whatever those runs start from.

    Raises JudgefreeError for an arm that the profile does not have.
    """
    params = YAML(typ="safe", pure=True).load(profile.read_text(encoding="utf-8"))
    runs = all_runs(params)
    named = [name for name, run in runs.items() if "arm" in run]
    if unknown := set(arms or ()) - set(named):
        raise JudgefreeError(f"no arm {', '.join(sorted(unknown))} in {profile.name}", f"known: {', '.join(named)}")
    chosen = set(arms or named)
    needed = set[str]()
    for name in chosen:
        needed |= starts_of(name, params)
    for section in {"runs", "save_runs"} & set(params):
        repeated = {
            f"{name}-s{seed}": {**run, "arm": name, "seed": seed}
            for name, run in params[section].items() if name in chosen
            for seed in range(SAVE_SEEDS if section == "save_runs" else MAIN_SEEDS if name in MAIN_ARMS else OTHER_SEEDS)
        }  # fmt: skip
        params[section] = {name: run for name, run in params[section].items() if name in needed} | repeated
    for section in {"bases", "reward_models"} & set(params):
        params[section] = {name: one for name, one in params[section].items() if name in needed}
    shutil.copytree(ROOT / "prompts", work / "prompts", dirs_exist_ok=True)
    with open(work / "params.yaml", "w", encoding="utf-8") as file:
        YAML().dump(params, file)
    load_params(work / "params.yaml")
    return params


def all_runs(params: Mapping[str, Any]) -> dict[str, Any]:
    return {**params["runs"], **params.get("save_runs", {})}


def starts_of(name: str, params: Mapping[str, Any]) -> set[str]:
    """The models that a run or a reward model is made from, and those that these are made from."""
    made = {**params.get("reward_models", {}), **all_runs(params)}.get(name)
    if made is None:
        return set()
    judge, policy = made.get("options", {}).get("reward_model"), made.get("value_fit", {}).get("policy")
    starts = {start for start in (made["start_from"], judge, policy) if start}
    return starts.union(*(starts_of(start, params) for start in starts))


def make_all(work: Path, params: dict[str, Any], processes: int) -> None:
    """Bases, data, warm-ups and reward models one after the other, then every arm's runs, `processes` at a time, then the
    comparison."""
    runs, judges = all_runs(params), params.get("reward_models", {})
    stage(work, "resolve")
    for name in params["bases"]:
        stage(work, "base", name)
    for name in {made["dataset"] for made in [*runs.values(), *judges.values()]}:
        stage(work, "prepare", name)
    stage(work, "pin")
    for name in params["bases"]:
        stage(work, "evaluate", name)
    repeated = [name for name, run in runs.items() if "arm" in run]
    for name in [name for name in runs if name not in repeated]:
        train_and_evaluate(work, name)
    for name in judges:
        make_reward_model(work, name)
    repeated.sort(key=lambda name: runs[name]["seed"])  # all arms early, should the time run out
    begun = time.monotonic()
    with ThreadPoolExecutor(processes) as pool:
        waiting = [pool.submit(train_and_evaluate, work, name) for name in repeated]
        try:
            for done, future in enumerate(as_completed(waiting), start=1):
                name, seconds = future.result()
                left = (time.monotonic() - begun) / done * (len(waiting) - done) / 60
                print(f"{done} of {len(waiting)}: {name}, {seconds:.0f} s; about {left:.0f} min left", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what runs now ends by itself, nothing new begins
            raise
    stage(work, "compare")
    stage(work, "sync")


def make_reward_model(work: Path, name: str) -> None:
    from judgefree.reward_training.build import read_job

    if not is_made(work, name, lambda: read_job(name, work).key):
        stage(work, "reward-model", name)


def train_and_evaluate(work: Path, name: str) -> tuple[str, float]:
    """The name and the seconds it took; a model that is there, made from just these settings, is not made again."""
    from judgefree.training.run import read_job

    begun = time.monotonic()
    if not is_made(work, name, lambda: read_job(name, work).key):
        stage(work, "train", name)
    stage(work, "evaluate", name)
    return name, time.monotonic() - begun


def is_made(work: Path, name: str, key: Callable[[], str]) -> bool:
    """Whether models/<name> is there, made from just these settings."""
    manifest = work / "models" / name / MANIFEST
    return manifest.is_file() and bool(read_json(manifest)["key"] == key())


def stage(work: Path, *command: str) -> None:
    """One `judgefree` command in the folder of the reproduction, its output in logs/. Raises JudgefreeError."""
    log = work / "logs" / f"{'-'.join(command)}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        running = subprocess.Popen([sys.executable, "-m", "judgefree", *command], cwd=work, stdout=file,
                                   stderr=subprocess.STDOUT)  # fmt: skip
        try:
            code = running.wait()
        except KeyboardInterrupt:  # the stage was told too (`subprocess.run` would kill it): it saves what it has
            running.wait()
            raise
    if code:
        raise JudgefreeError(f"`judgefree {' '.join(command)}` ended with {code}", f"see {log}, then repeat")


if __name__ == "__main__":
    main()
