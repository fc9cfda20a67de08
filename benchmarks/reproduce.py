"""`make reproduce`: the papers' claims at small scale, several seeds an arm, outside DVC.

profiles/reproduce.yaml has one run per arm; SEEDS says how often each is repeated, with seeds 0, 1, 2, ... from the same
warm-up. Everything is made in `.work/reproduce`, two trainings at a time. What is finished is not made again and what
was cut off goes on from its last checkpoint, so the same command continues after any stop. At the end the claims are
judged (claims.py), docs/results.md and its plots are written (results_page.py), and all runs stand in one MLflow store:
`mlflow ui --backend-store-uri sqlite:///.work/reproduce/mlruns/mlflow.db`.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, read_json
from judgefree.params import load_params
from judgefree.training.run import read_job

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "profiles" / "reproduce.yaml"
MAIN_SEEDS, OTHER_SEEDS = 5, 3
MAIN_ARMS = ("grpo", "intuitor", "cluster", "multi", "multi-kl-cov", "rlvr-orders", "srrl", "spyrl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="trainings at a time (default: 2)")
    parser.add_argument("--arms", nargs="*", help="only these arms; the page then goes into the work folder")
    parser.add_argument("--work", type=Path, default=ROOT / ".work" / "reproduce", help="where the models are made")
    parser.add_argument("--page-only", action="store_true", help="judge what is there and write the page")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    try:
        project = write_project(options.work, options.arms)
        if not options.page_only:
            make_all(options.work, project, options.processes)
        from benchmarks.results_page import write_page

        write_page(options.work, options.work if options.arms else ROOT / "docs")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from there")
    except JudgefreeError as error:
        sys.exit(f"{error.problem}\n  fix: {error.fix}")


def stop(number: int, frame: Any) -> None:
    """A request to end goes on to the stages that run, which save what they have, as Ctrl-C reaches all by itself."""
    for child in psutil.Process().children():
        child.terminate()
    raise KeyboardInterrupt


def write_project(work: Path, arms: list[str] | None) -> dict[str, Any]:
    """params.yaml of the reproduction: every chosen arm once per seed, and whatever those runs start from.

    Raises JudgefreeError for an arm that the profile does not have.
    """
    params = YAML(typ="safe", pure=True).load(PROFILE.read_text(encoding="utf-8"))
    named = [name for name, run in params["runs"].items() if "arm" in run]
    if unknown := set(arms or ()) - set(named):
        raise JudgefreeError(f"no arm {', '.join(sorted(unknown))} in {PROFILE.name}", f"known: {', '.join(named)}")
    repeated = {}
    for name in arms or named:
        for seed in range(MAIN_SEEDS if name in MAIN_ARMS else OTHER_SEEDS):
            repeated[f"{name}-s{seed}"] = {**params["runs"][name], "arm": name, "seed": seed}
    needed = set()
    for run in repeated.values():
        while (start := run["start_from"]) not in params["bases"]:
            needed.add(start)
            run = params["runs"][start]
        needed.add(start)
    params["runs"] = {name: run for name, run in params["runs"].items() if name in needed} | repeated
    params["bases"] = {name: base for name, base in params["bases"].items() if name in needed}
    shutil.copytree(ROOT / "prompts", work / "prompts", dirs_exist_ok=True)
    with open(work / "params.yaml", "w", encoding="utf-8") as file:
        YAML().dump(params, file)
    load_params(work / "params.yaml")
    return params


def make_all(work: Path, params: dict[str, Any], processes: int) -> None:
    """Bases, data and warm-ups one after the other, then every arm's runs, `processes` at a time, then the comparison."""
    stage(work, "resolve")
    for name in params["bases"]:
        stage(work, "base", name)
    for name in {run["dataset"] for run in params["runs"].values()}:
        stage(work, "prepare", name)
    stage(work, "pin")
    for name in params["bases"]:
        stage(work, "evaluate", name)
    repeated = [name for name, run in params["runs"].items() if "arm" in run]
    for name in [name for name in params["runs"] if name not in repeated]:
        train_and_evaluate(work, name)
    repeated.sort(key=lambda name: params["runs"][name]["seed"])  # all arms early, should the time run out
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


def train_and_evaluate(work: Path, name: str) -> tuple[str, float]:
    """The name and the seconds it took; a model that is there, made from just these settings, is not made again."""
    begun = time.monotonic()
    manifest = work / "models" / name / MANIFEST
    if not manifest.is_file() or read_json(manifest)["key"] != read_job(name, work).key:
        stage(work, "train", name)
    stage(work, "evaluate", name)
    return name, time.monotonic() - begun


def stage(work: Path, *command: str) -> None:
    """One `judgefree` command in the folder of the reproduction, its output in logs/. Raises JudgefreeError."""
    log = work / "logs" / f"{'-'.join(command)}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        done = subprocess.run([sys.executable, "-m", "judgefree", *command], cwd=work, stdout=file,
                              stderr=subprocess.STDOUT, check=False)  # fmt: skip
    if done.returncode:
        raise JudgefreeError(f"`judgefree {' '.join(command)}` ended with {done.returncode}", f"see {log}, then repeat")


if __name__ == "__main__":
    main()
