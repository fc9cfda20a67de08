"""params.yaml as a whole: read as YAML 1.2, refused with the key's path and the fix, resolved into one file per stage."""

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from judgefree.config import Compare, Count, Gates, Grading, Pipeline, PromptFormat, Run, Strict, Suite, Training
from judgefree.config_benchmarks import AlpacaEval, ArenaHard
from judgefree.config_data import (
    Base,
    Data,
    Generated,
    MawpsData,
    ScratchBase,
    require_vocabulary,
)
from judgefree.config_judges import JudgeSettings, Pair
from judgefree.config_reward_models import RewardModelSettings
from judgefree.config_rewards import RewardBenchmarks, RewardGates
from judgefree.errors import JudgefreeError
from judgefree.files import sha256_file
from judgefree.params_benchmarks import (
    check_answering,
    check_measures,
    check_pairs,
    check_rewarding,
    known_name,
    require_pairs,
    require_window,
)
from judgefree.places import require_clone
from judgefree.refusals import refusals
from judgefree.texts import read_judge_texts, read_mapping, read_texts

DATA_PARALLEL = ("NO", "MULTI_CPU", "MULTI_GPU")  # accelerate's kinds that leave each process the whole model
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_NAMING = "a name is made of a-z, 0-9, _ and -, and begins with a letter or digit; rename it"


class Params(Strict):
    threads: Count
    python: str
    bases: dict[str, Base]
    data: dict[str, Data]
    prompts: dict[str, PromptFormat]
    grading: Grading
    training: Training
    runs: dict[str, Run]
    suites: dict[str, Suite]
    compare: Compare
    pipeline: Pipeline
    gates: Gates
    judges: dict[str, JudgeSettings] = {}
    pairs: dict[str, Pair] = {}
    reward_benchmarks: RewardBenchmarks | None = None
    alpaca_eval: AlpacaEval | None = None
    arena_hard: ArenaHard | None = None
    reward_gates: RewardGates | None = None
    reward_models: dict[str, RewardModelSettings] = {}
    save_runs: list[str] = []  # names; their settings stand among `runs`

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, raw: Any) -> Any:
        """The section `save_runs` has the runs that need a reward model: a stage of their own in dvc.yaml, where a stage of
        `runs` could not have it for an input. Everywhere else they are runs like all others."""
        if not isinstance(raw, Mapping) or (own := raw.get("save_runs")) is None:
            return raw
        if not isinstance(own, Mapping):
            raise ValueError("save_runs: has no names; write it as the section runs")
        others = raw.get("runs") or {}
        for name in own:
            if name in others:
                raise ValueError(f"save_runs.{name}: is a name among runs too; rename one")
        return {**raw, "runs": {**others, **own}, "save_runs": list(own)}

    @model_validator(mode="after")
    def _whole(self) -> "Params":
        for section in ("bases", "data", "runs", "suites", "judges", "pairs", "reward_models"):
            for name in getattr(self, section):
                if not NAME.fullmatch(name):
                    raise ValueError(f"{section}.{name}: {_NAMING}")
        self._named()
        for name, run in self.runs.items():
            known_name(f"{run.path(name)}.dataset", run.dataset, self.data)
            known_name(f"{run.path(name)}.start_from", run.start_from, {**self.bases, **self.runs})
            self.training_of(name)
            for suite in run.suites:
                known_name(f"{run.path(name)}.suites", suite, self.suites)
        for name, base in self.bases.items():
            for suite in base.suites:
                known_name(f"bases.{name}.suites", suite, self.suites)
        for name, benchmark in self.suites.items():
            known_name(f"suites.{name}.dataset", benchmark.dataset, self.data)
        for name in {run.dataset for run in self.runs.values()} | {suite.dataset for suite in self.suites.values()}:
            if name not in self.prompts:
                raise ValueError(f"prompts.{name}: missing; say how a question of this data set is put to the policy")
            if self.prompts[name].measure != (measure := self.data[name].measure):
                known = f"set measure: {measure}" if measure else "remove it"
                raise ValueError(
                    f"prompts.{name}.measure: is not what data of kind {self.data[name].kind} is measured by; {known}"
                )
        for name, run in self.runs.items():
            origin, data, key = self.bases[self.ancestry(name)[-1]], self.data[run.dataset], f"{run.path(name)}.dataset"
            if isinstance(origin, ScratchBase) and isinstance(data, Generated):
                require_vocabulary(key, run.dataset, origin, data)
            if isinstance(data, MawpsData):
                raise ValueError(f"{key}: {run.dataset} has a test split only; train on another data set")
        self._rewarded()
        self._arms()
        check_measures(self.suites, self.prompts)
        self._gated()
        self._judged_blindly()
        check_pairs(self.pairs, self.judges, {**self.bases, **self.runs})
        self._benchmarked()
        return self

    def _named(self) -> None:
        """A name in models/ is one model, and a run stands in the section that has its stage."""
        for name, run in self.runs.items():
            path = f"{'save_runs' if name in self.save_runs else 'runs'}.{name}"
            if name in self.bases:
                raise ValueError(f"{path}: is the name of a base too; both live in models/, rename one")
            if path != run.path(name) and name in self.save_runs:
                raise ValueError(f"{path}.options.reward_model: missing; name a reward model there, or move the run to the "
                                 "section runs if its method has none")  # fmt: skip
            if path != run.path(name):
                raise ValueError(
                    f"{path}: a run with options.reward_model stands in the section save_runs; move it there"
                )
        for name in self.reward_models:
            if name in self.runs or name in self.bases:
                other = self.runs[name].path(name) if name in self.runs else f"bases.{name}"
                raise ValueError(f"reward_models.{name}: {other} has that name too; all live in models/, rename one")

    def _rewarded(self) -> None:
        """Reward models are made from what is there, not from each other's results, and are given no more tokens than they
        take."""
        known = {*self.reward_models, *self.save_runs}
        for name in self.save_runs:
            given = str(self.runs[name].options["reward_model"])
            known_name(f"save_runs.{name}.options.reward_model", given, known - {name})
        for name, settings in self.reward_models.items():
            policies = {**self.bases, **self.runs}
            known_name(f"reward_models.{name}.start_from", settings.start_from, policies)
            known_name(f"reward_models.{name}.value_fit.policy", settings.value_fit.policy, policies)
            known_name(f"reward_models.{name}.dataset", settings.dataset, self.data)
            known_name(f"prompts.{settings.dataset}", settings.dataset, self.prompts)
            require_pairs(f"reward_models.{name}.dataset", settings.dataset, self.data)
        self._acyclic()
        for name, settings in self.reward_models.items():
            require_window(f"reward_models.{name}.max_tokens", settings.max_tokens, *self._origin(name))

    def _acyclic(self) -> None:
        made = {
            name: {run.start_from, run.options.get("reward_model", run.start_from)} for name, run in self.runs.items()
        }
        made |= {name: {one.start_from, one.value_fit.policy} for name, one in self.reward_models.items()}
        try:
            TopologicalSorter(made).prepare()
        except CycleError as error:
            *circle, _ = error.args[1]
            raise ValueError(f"{' and '.join(sorted(circle))} are made from each other (start_from, options.reward_model, "
                             "value_fit.policy); let one of them start from another model") from error  # fmt: skip

    def _benchmarked(self) -> None:
        policies = {**self.bases, **self.runs}
        check_answering("alpaca_eval", self.alpaca_eval, self.judges, policies)
        check_answering("arena_hard", self.arena_hard, self.judges, policies)
        datasets = {name: model.dataset for name, model in self.reward_models.items()}
        datasets |= {name: self.runs[name].dataset for name in self.save_runs}
        check_rewarding(self.reward_benchmarks, self.reward_gates, datasets, self.data)
        if judged := self.reward_benchmarks:
            for name in judged.models:
                require_window("reward_benchmarks.max_tokens", judged.max_tokens, *self._origin(name))

    def _arms(self) -> None:
        """Runs of one arm are pooled over seeds, so nothing else may differ between them, nor between their starts."""
        firsts: dict[str, tuple[str, Run]] = {}
        seeds: dict[tuple[str, int], str] = {}
        for name, run in self.runs.items():
            arm = self._arm_of(name)
            self._arm_name(f"{run.path(name)}.arm", arm)
            first, example = firsts.setdefault(arm, (name, run))
            same = {"seed": run.seed, "start_from": run.start_from, "arm": run.arm}
            if example.model_copy(update=same) != run:
                raise ValueError(
                    f"{run.path(name)}.arm: differs from {example.path(first)} by more than its seed; give it another arm"
                )
            if self._arm_of(example.start_from) != self._arm_of(run.start_from):
                raise ValueError(
                    f"{run.path(name)}.start_from: {run.start_from} and {example.start_from}, which {example.path(first)} "
                    f"of arm {arm!r} starts from, are no runs of one arm; start from the same, or give the run another arm"
                )
            if (other := seeds.setdefault((arm, run.seed), name)) != name:
                raise ValueError(f"{run.path(name)}.seed: {run.path(other)} of arm {arm!r} has seed {run.seed} too; "
                                 "change one")  # fmt: skip

    def _arm_of(self, name: str) -> str:
        return name if name in self.bases else self.runs[name].arm or name

    def _arm_name(self, key: str, arm: str) -> None:
        """Arms, bases and runs stand side by side in one table, so one name means one thing."""
        if not NAME.fullmatch(arm):
            raise ValueError(f"{key}: {arm!r}: {_NAMING}")
        if arm in self.bases or (arm in self.runs and self._arm_of(arm) != arm):
            kind = "a base" if arm in self.bases else f"a run of arm {self._arm_of(arm)!r}"
            raise ValueError(f"{key}: {arm!r} is the name of {kind}; use another")

    def _gated(self) -> None:
        """A suite that decides on a task is one of its bases', which a first candidate is compared with; it has the measure
        that the gate compares, and draws samples where that is of samples."""
        for name, run in self.runs.items():
            task, base = run.dataset, self.ancestry(name)[-1]
            decides = self.deciding_suite(task)
            if decides is None:
                continue
            if decides not in self.bases[base].suites:
                raise ValueError(
                    f"bases.{base}.suites: without {decides}, which decides on {task}, there is nothing to compare a first "
                    f"candidate with; add {decides}"
                )
            texts = self.prompts[task].measure == "rouge"
            measure, plain = self.gates.measure_of(texts), "rouge_l" if texts else "pass@1"
            if measure.endswith("rouge_l") != texts:
                kind, fix = ("texts", "gates.text_measure: rouge_l") if texts else (
                    "values", "gates.measure: pass@1, and what is measured now as gates.text_measure")  # fmt: skip
                raise ValueError(
                    f"gates.measure: {measure}, and suite {decides}, which decides on {task}, measures {kind}; set {fix}"
                )
            if measure.startswith("sampled/") and not self.suites[decides].samples:
                key = "text_measure" if texts and self.gates.text_measure else "measure"
                raise ValueError(
                    f"gates.{key}: {measure}, and suite {decides}, which decides on {task}, draws no samples; "
                    f"set suites.{decides}.samples or use {plain}"
                )

    def _judged_blindly(self) -> None:
        """No gate by a suite that looks at the gold answers while it is tested."""
        for task in dict.fromkeys(run.dataset for run in self.runs.values()):
            decides = self.deciding_suite(task)
            if decides and (retry := self.suites[decides].retry) and retry.procedure == "reflexion":
                raise ValueError(
                    f"suites.{decides}.retry: reflexion asks the gold answers which attempts failed, so this suite cannot "
                    f"decide on {task}; let a suite without retry be named {task}, and this one otherwise"
                )

    def deciding_suite(self, task: str) -> str | None:
        """The suite that decides on a task: the one of its name, or the only one on its data set; None without either."""
        suites = [name for name, suite in self.suites.items() if suite.dataset == task]
        return task if task in suites else suites[0] if len(suites) == 1 else None

    def training_of(self, run: str) -> Training:
        """The shared training settings with the run's overrides laid over them, key by key."""
        own = self.runs[run]
        merged = _merge(self.training.model_dump(exclude_none=True), own.training)
        try:
            return Training.model_validate(merged)
        except ValidationError as error:
            raise ValueError("; ".join(refusals(error, Training, f"{own.path(run)}.training"))) from error

    def ancestry(self, name: str) -> list[str]:
        """Names from `name` down to its base, e.g. [rlvr, warmup, tiny]; refuses a cycle."""
        chain = [name]
        while (last := chain[-1]) in self.runs:
            if self.runs[last].start_from in chain:
                key = f"{self.runs[last].path(last)}.start_from"
                circle = " -> ".join([*chain, self.runs[last].start_from])
                raise ValueError(f"{key}: {circle} is a cycle; let one of them start from a base")
            chain.append(self.runs[last].start_from)
        return chain

    def reward_ancestry(self, name: str) -> list[str]:
        """From a run with a reward model, over the runs that improved it before, to its entry of reward_models, which may be
        `name` itself."""
        chain = [name]
        while chain[-1] in self.save_runs:
            chain.append(self.runs[chain[-1]].options["reward_model"])
        return chain

    def _origin(self, reward_model: str) -> tuple[str, Base]:
        """The base that the weights of a reward model, or of a run's own, come from."""
        made = self.reward_models[self.reward_ancestry(reward_model)[-1]]
        name = self.ancestry(made.start_from)[-1]
        return name, self.bases[name]


def load_params(path: Path) -> Params:
    """Read and check a parameter file (YAML 1.2: `1e-5` is a number).

    Raises JudgefreeError naming the file, the key's path and the fix.
    """
    if not path.is_file():
        require_clone(path.parent)
        raise JudgefreeError(f"{path} does not exist", "run `judgefree profile tiny` to write one")
    return parse_params(read_mapping(path), str(path))


def parse_params(raw: Mapping[str, Any], origin: str) -> Params:
    """Check settings that are already a mapping; `origin` names their source in messages."""
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        apart = own if isinstance(own := raw.get("save_runs"), Mapping) else ()
        raise JudgefreeError(
            f"{origin} is refused:\n  - " + "\n  - ".join(refusals(error, Params, "", apart))
        ) from error


def resolve(params: Params, root: Path = Path()) -> dict[str, dict[str, Any]]:
    """What each stage is run with, by file name below `resolved/`: plain JSON values, absent features left out.

    root: the project's folder, in which files that the settings name are looked up; their content is a setting too.
    Raises JudgefreeError naming the key of a file that is not there or cannot be read.
    """
    plain = params.model_dump(mode="json", exclude_none=True)
    shared = {"threads": params.threads, "grading": plain["grading"]}
    files: dict[str, dict[str, Any]] = {}
    for name, base in plain["bases"].items():
        files[f"base/{name}.json"] = {"base": {k: v for k, v in base.items() if k != "suites"}}
    for name, data in plain["data"].items():
        files[f"data/{name}.json"] = {"data": data}
    for name, model in plain["reward_models"].items():
        files[f"reward_model/{name}.json"] = {
            "threads": params.threads, "reward_model": model, "prompt": plain["prompts"][model["dataset"]],
        }  # fmt: skip
    for name, run in plain["runs"].items():
        path = params.runs[name].path(name)
        settings = {k: v for k, v in run.items() if k not in ("suites", "training", "arm")}
        training = params.training_of(name).model_dump(mode="json", exclude_none=True)
        files[f"train/{name}.json"] = {
            **shared, "run": settings, "training": training, "prompt": plain["prompts"][run["dataset"]],
        }  # fmt: skip
        if "accelerate_config" in training:
            config = root / training["accelerate_config"]
            if not config.is_file():
                raise JudgefreeError(
                    f"{path}: training.accelerate_config: {config} does not exist",
                    "write it with `accelerate config --config_file ...`",
                )
            kind = read_mapping(config).get("distributed_type", "NO")
            if kind not in DATA_PARALLEL:
                raise JudgefreeError(
                    f"{path}: training.accelerate_config: {config} asks for {kind}, and training wants whole weights "
                    "in each process",
                    f"set distributed_type: MULTI_GPU there; where the weights are too large for one device, set "
                    f"{path}.training.lora",
                )
            files[f"train/{name}.json"]["accelerate_config_sha256"] = sha256_file(config)
        if isinstance(file := params.runs[name].options.get("prompts"), str):
            files[f"train/{name}.json"]["texts"] = read_texts(root, file, f"{path}.options.prompts")
    texts = {}
    for name, suite in params.suites.items():
        if suite.prompt_file:
            key, file = suite.prompt_file
            texts[name] = read_texts(root, file, f"suites.{name}.{key}")
    for name, model in {**plain["bases"], **plain["runs"]}.items():
        suites = {key: plain["suites"][key] for key in model["suites"]}
        prompts = {suite["dataset"]: plain["prompts"][suite["dataset"]] for suite in suites.values()}
        files[f"evaluate/{name}.json"] = {**shared, "suites": suites, "prompts": prompts}
        if own := {key: texts[key] for key in suites if key in texts}:
            files[f"evaluate/{name}.json"]["texts"] = own
    models = {
        name: {"arm": model.get("arm", name), "start_from": model.get("start_from"), "suites": model["suites"],
               "method": model.get("method"), "seed": model.get("seed")}
        for name, model in {**plain["bases"], **plain["runs"]}.items()
    }  # fmt: skip
    for name, pair in plain["pairs"].items():
        files[f"pairwise/{name}.json"] = {
            "pair": pair, "judge": plain["judges"][pair["judge"]], "compare": plain["compare"], "threads": params.threads,
        }  # fmt: skip
        if "prompts" in pair:
            files[f"pairwise/{name}.json"]["texts"] = read_texts(root, pair["prompts"], f"pairs.{name}.prompts")
    for section in ("alpaca_eval", "arena_hard"):
        if benchmark := plain.get(section):
            content = {
                "benchmark": {key: value for key, value in benchmark.items() if key != "models"},
                "judge": plain["judges"][benchmark["judge"]], "threads": params.threads,
            }  # fmt: skip
            if prompts := benchmark.get("prompts"):
                content["texts"] = read_judge_texts(root, prompts, f"{section}.prompts")
            files |= {f"{section}/{name}.json": content for name in benchmark["models"]}
    if judged := plain.get("reward_benchmarks"):
        settings = {key: value for key, value in judged.items() if key != "models"}
        content = {"reward_benchmarks": settings, "threads": params.threads}
        files |= {f"reward_bench/{name}.json": content for name in judged["models"]}
    files["compare.json"] = {"compare": plain["compare"], "models": models, "suites": plain["suites"]}
    return files


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return {key: value for key, value in merged.items() if value is not None}
