"""The stage `train`: from a resolved run, a start model and a prepared data set to models/<run>.

    resolved/train/<run>.json + models/<start> + data/<dataset>  --key-->  .work/train/<key>/  --rename-->  models/<run>/

Work in progress lives under its key, so the same command after a kill goes on from the newest valid checkpoint.
"""

import logging
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from transformers.utils import logging as hf_logging

from judgefree import methods
from judgefree.config import PromptFormat, Run, Training
from judgefree.data.splits import load_split
from judgefree.devices import device_of
from judgefree.episodes import Method, Rollout
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, code_hash, key_of, publish, read_json, require_space, seal, verify, writing
from judgefree.scoring.grader import Grader
from judgefree.training.arguments import episode_arguments, lora_config
from judgefree.training.callbacks import STATE, TENSORS, LiveLog, RunCallback, RunState, has_ended, load_run_state
from judgefree.training.checkpoints import newest_valid, step_of
from judgefree.training.engines import make_engine
from judgefree.training.history import selected_step, signal_of
from judgefree.training.launch import STOPPED
from judgefree.training.lock import alone_in
from judgefree.training.monitor import alarm_counts, collapse_facts
from judgefree.training.policy import Engine, TrainedPolicy
from judgefree.training.progress import Progress
from judgefree.training.records import Records
from judgefree.training.space import space_held, space_of
from judgefree.training.supervised import sft_trainer
from judgefree.training.trainer import EpisodeTrainer
from judgefree.training.validation import require_answers, validation_scores

log = logging.getLogger(__name__)
hf_logging.disable_progress_bar()  # loading and saving take no time worth a bar
warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)  # TRL 1.16's own use

PACKAGE = Path(__file__).parents[1]
SHARED_CODE = (
    "advantages.py", "data/splits.py", "data/tables.py", "devices.py", "episodes.py", "files.py", "judging/answers.py",
    "judging/endpoint.py", "judging/judges.py", "judging/words.py", "prompting.py", "rlsvr", "sampling", "scoring",
    "training",
)  # fmt: skip

REWARD_CODE = "reward_model"  # of runs whose method is given a reward model


@dataclass(frozen=True)
class Job:
    """One run, checked and located."""

    name: str
    root: Path
    run: Run
    training: Training
    prompt: PromptFormat
    grading: dict[str, Any]
    texts: dict[str, str]  # of the method's prompt file
    key: str
    models: dict[str, Path]  # folders that the method's options name
    made_from: dict[str, Any]  # what MLflow shows: the resolved settings and the sha256 of the split files

    @property
    def start(self) -> Path:
        return self.root / "models" / self.run.start_from

    @property
    def data(self) -> Path:
        return self.root / "data" / self.run.dataset

    @property
    def work(self) -> Path:
        return self.root / ".work" / "train" / self.key

    @property
    def target(self) -> Path:
        return self.root / "models" / self.name


@dataclass
class Standing:
    """Where a run stands: what it knows, what its method knew, its records, the checkpoint it goes on from."""

    state: RunState
    method_state: dict[str, Any]
    records: Records
    checkpoint: Path | None

    @property
    def step(self) -> int:
        return step_of(self.checkpoint) if self.checkpoint else 0


def read_job(name: str, root: Path) -> Job:
    """Raises JudgefreeError when the run is not resolved, or when its inputs are missing or not as written."""
    path = root / "resolved" / "train" / f"{name}.json"
    if not path.is_file():
        raise JudgefreeError(f"{path} does not exist: no run {name!r} is resolved",
                             "add it to runs in params.yaml and run `judgefree resolve`, or `dvc repro`")  # fmt: skip
    resolved = read_json(path)
    run = Run.model_validate({**resolved["run"], "suites": []})
    start = verify(root / "models" / run.start_from)
    splits = read_json(root / "data" / run.dataset / MANIFEST)["files"]
    sources = [PACKAGE / name for name in SHARED_CODE] + [PACKAGE / "methods" / f"{run.method}.py"]
    read = {name: facts for name, facts in splits.items() if name in ("train.parquet", "validation.parquet")}
    models = methods.models_of(run, root)
    counted = {**resolved, "grading": {"timeout_s": resolved["grading"]["timeout_s"]}}  # workers change no result
    if models:
        sources.append(PACKAGE / REWARD_CODE)
        counted["models"] = {name: verify(root / "models" / name)["files"] for name in models}
    key = key_of("train", counted, start["files"], read, code_hash(sources))
    made_from = {"settings": resolved, "data_sha256": {name: facts["sha256"] for name, facts in read.items()}}
    training = Training.model_validate(resolved["training"])
    return Job(
        name, root, run, training, PromptFormat.model_validate(resolved["prompt"]), resolved["grading"],
        resolved.get("texts", {}), key, models, made_from,
    )  # fmt: skip


def train(name: str, root: Path, tell: Callable[[Path, str, str, Path], LiveLog] | None = None) -> None:
    """Train a run to its end, or go on with it; publishes models/<name>.

    tell: makes from root, name, key and work folder what hears of the metrics at every checkpoint.

    Raises JudgefreeError for bad input, MayPass when another process trains this run, SystemExit(143) after a SIGTERM once
    the checkpoint is saved.
    """
    job = read_job(name, root)
    device_of(job.training.device, f"training.device of run {name}")  # Accelerate would take the CPU without a word
    processes = PartialState(cpu=job.training.device == "cpu")
    with alone_in(job.work) if processes.is_main_process else nullcontext():
        train_job(job, processes, tell)


def train_job(job: Job, processes: PartialState, tell: Callable[[Path, str, str, Path], LiveLog] | None) -> None:
    require_space(job.work, space_of(job.start, job.training, list(job.models.values())) - space_held(job.work))
    job.work.mkdir(parents=True, exist_ok=True)
    options = methods.options_of(job.name, job.run)
    torch.manual_seed(job.run.seed)
    with processes.main_process_first():  # it removes what is broken
        standing = find_standing(job)
    if processes.is_main_process:
        standing.records.cut(standing.step)
    if standing.checkpoint:
        log.warning("%s: going on from step %d of %d", job.name, standing.step, job.training.steps)
    if standing.step < job.training.steps and not standing.state.collapsed:
        with Grader(job.grading["workers"], job.grading["timeout_s"]) as grader:
            live = tell(job.root, job.name, job.key, job.work) if tell else None
            try:
                with writing(job.work):
                    run_trainer(job, options, grader, standing, live)
            except Exception:
                if live and processes.is_main_process:
                    live.end({}, "FAILED")  # without rows: steps that no checkpoint holds are not logged
                raise
    if standing.state.stop_requested and not standing.state.collapsed:
        log.warning("%s: stopped by a signal, saved in %s; the same command goes on from there", job.name, job.work)
        raise SystemExit(STOPPED)
    if processes.is_main_process:
        with writing(job.work):
            publish_run(job, standing)


def find_standing(job: Job) -> Standing:
    checkpoint = newest_valid(job.work)
    state, method_state = load_run_state(checkpoint) if checkpoint else (RunState(), {})
    return Standing(state, method_state, Records(job.work / "records"), checkpoint)


def run_trainer(job: Job, options: Any, grader: Grader, standing: Standing, live: LiveLog | None) -> None:
    if job.training.engine == "vllm":
        from judgefree.sampling.vllm_engine import require_vllm

        require_vllm()
    examples = load_split(job.data, "train")
    validation = load_split(job.data, "validation", limit=job.training.validation_items)
    if job.run.select == "validation":
        require_answers(job.run.path(job.name), job.run.dataset, validation, job.prompt)
    tokenizer = AutoTokenizer.from_pretrained(job.start, local_files_only=True, padding_side="left")
    model = load_policy(job.start, job.training)
    method: Method | None = None
    trainer: Any = None

    def validate() -> dict[str, float]:
        return validation_scores(policy_of(trainer, job, tokenizer), validation, job.prompt, grader)

    def tokens() -> int:
        return trainer.policy.tokens_sampled if isinstance(trainer, EpisodeTrainer) else 0

    callback = RunCallback(
        standing.state, job.work, standing.records,
        save_every=job.training.save_every, boundary=job.training.updates_per_rollout,
        max_bad_steps=job.training.max_bad_steps, validate=validate, select=job.run.select,
        method_state=lambda: method.state_dict() if method else {}, progress=Progress(job.name, tokens),
        monitor=job.training.monitor, live=live,
    )  # fmt: skip
    if job.run.method == methods.SFT:
        trainer = sft_trainer(
            model, tokenizer, examples, job.training, job.prompt, options, job.run.seed, job.work, [callback]
        )
    else:
        method = methods.METHODS[job.run.method](
            options,
            methods.Setting(
                job.training, job.prompt, grader, job.run.seed, texts=job.texts, root=job.root, models=job.models
            ),
        )
        method.load_state_dict(standing.method_state)

        def keep(step: int, rollout: Rollout) -> None:
            rows = trainer.policy.gather(rollout.records)
            if trainer.is_world_process_zero():
                standing.records.add(step, rows)

        trainer = EpisodeTrainer(
            model, method=method, examples=examples, training=job.training, prompt=job.prompt, seed=job.run.seed,
            make_engine=make_engine, on_rollout=keep, tokenizer=tokenizer, callbacks=[callback],
            args=episode_arguments(job.training, job.work, job.run.seed), peft_config=lora_config(job.training),
        )  # fmt: skip
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise JudgefreeError(
            "FSDP or DeepSpeed is switched on (by ACCELERATE_... variables?): training wants whole weights in each process",
            "unset it; where the weights are too large for one device, train a LoRA",
        )
    trainer.remove_callback(PrinterCallback)  # our own progress speaks for the run
    trainer.train(resume_from_checkpoint=str(standing.checkpoint) if standing.checkpoint else None)


def load_policy(folder: Path, training: Training) -> Any:
    """A causal language model from safetensors files only.

    Weights that are trained are fp32, also under precision bf16 (which then is the precision of computation): a step of
    1e-6 on a weight of 0.02 is below what bf16 can hold. Under LoRA the base is not trained and may be bf16.
    """
    if not list(folder.glob("*.safetensors")):
        raise JudgefreeError(
            f"{folder} holds no .safetensors file", "only safetensors weights are loaded; convert them"
        )
    frozen = training.lora is not None and training.precision == "bf16"
    dtype = torch.bfloat16 if frozen else torch.float32
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, local_files_only=True, use_safetensors=True, trust_remote_code=False
    )


def policy_of(trainer: Any, job: Job, tokenizer: Any) -> TrainedPolicy:
    if isinstance(trainer, EpisodeTrainer):
        return trainer.policy
    engine: Engine = make_engine(trainer, job.training, job.prompt)
    return TrainedPolicy(tokenizer, job.prompt, job.training, job.run.seed, engine, lambda turns: [])


def publish_run(job: Job, standing: Standing) -> None:
    """Assemble models/<run> from the selected checkpoint and move it into place."""
    state, checkpoint = standing.state, newest_valid(job.work)
    if checkpoint is None:
        raise JudgefreeError(f"run {job.name} collapsed before its first checkpoint: {state.bad_steps} steps were not "
                             "finite", "lower training.learning_rate or save more often")  # fmt: skip
    history, last = load_run_state(checkpoint)[0].history, step_of(checkpoint)
    collapsed = state.collapsed or has_ended(history)
    chosen = selected_step(history, job.run.select, last)
    if collapsed and job.run.select == "last":  # the last weights are of no use then
        chosen = history.best(signal_of(history, job.run.select)) or last
    source = job.work / f"checkpoint-{chosen}"
    try:
        verify(source)
    except JudgefreeError as error:
        raise JudgefreeError(f"the checkpoint that run {job.name} hands on is damaged: {error.problem}",
                             f"remove {job.work} and repeat: the run is made again") from error  # fmt: skip
    final = job.work / "final"
    shutil.rmtree(final, ignore_errors=True)
    final.mkdir()
    save_policy(job, source, final)
    for file in (STATE, TENSORS):
        if (checkpoint / file).is_file():
            shutil.copy(checkpoint / file, final / file)
    if export := methods.EXPORTS.get(job.run.method):
        export(load_run_state(source)[1], methods.options_of(job.name, job.run), job.models, final)
    history.save_parquet(final / "history.parquet")
    standing.records.publish(final / "records", job.training.save_every)
    seal(final, {
        "kind": "run", "key": job.key, "method": job.run.method, "dataset": job.run.dataset, "seed": job.run.seed,
        "start_from": job.run.start_from, "select": job.run.select, "selected_step": chosen, "steps": last,
        "status": "collapsed" if collapsed else "finished", "bad_steps": state.bad_steps,
        "collapse": collapse_facts(history.rows), "alarms": alarm_counts(history.rows), **job.made_from,
    })  # fmt: skip
    publish(final, job.target)
    place = os.path.relpath(job.target, job.root)
    steps = "1 step" if last == 1 else f"{last} steps"
    print(f"{job.name}: trained {steps}; the weights of step {chosen} (select: {job.run.select}) are in {place}")
    if nothing_learnt(history.rows):
        why = "no answer or vote could be read, or all of a group earned the same"
        print(f"{job.name}: nothing was learnt: every gradient was 0; {why} (`judgefree transcript {job.name}`)")


def nothing_learnt(rows: Mapping[int, Mapping[str, float]]) -> bool:
    """Whether a history has gradients and all of them are 0."""
    norms = [row["grad_norm"] for row in rows.values() if "grad_norm" in row]
    return bool(norms) and not any(norms)


def save_policy(job: Job, source: Path, target: Path) -> None:
    """Weights and tokenizer of a checkpoint; a LoRA adapter is merged into a fresh copy of its base, in fp32: rounded to the
    base's bf16, small changes would be lost and the published model would not be the policy that was trained."""
    if (source / "adapter_config.json").is_file():
        from peft import PeftModel

        base = load_policy(job.start, job.training).float()
        PeftModel.from_pretrained(base, source, local_files_only=True).merge_and_unload().save_pretrained(target)
    else:
        weights = list(source.glob("model*.safetensors"))
        if not weights:
            raise JudgefreeError(f"{source} holds no weights (model*.safetensors)",
                                 f"remove {job.work} and repeat: the run is made again")  # fmt: skip
        index = source / "model.safetensors.index.json"
        for file in [source / "config.json", *weights, index, source / "generation_config.json"]:
            if file.is_file():
                shutil.copy(file, target / file.name)
    for file in job.start.iterdir():
        if file.name.startswith(("tokenizer", "special_tokens", "chat_template", "vocab", "merges", "added_tokens")):
            shutil.copy(file, target / file.name)
