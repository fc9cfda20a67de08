"""The stage `reward-model`: from a start model and preference pairs to a value-anchored reward model in models/<name>.

    stage 1   Bradley-Terry on pairs, by TRL's RewardTrainer; left out for a start that is a reward model already
    stage 2   the value head, on responses of the policy that will train (values.py)

Work in progress lives in .work/reward_model/<key>. After a stop, stage 1 goes on from its last checkpoint and is not done
again once it was finished.
"""

import logging
import shutil
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PrinterCallback
from transformers.utils import logging as hf_logging
from trl import RewardConfig, RewardTrainer

from judgefree.config import PromptFormat
from judgefree.config_reward_models import PairTraining, RewardModelSettings
from judgefree.data.splits import load_split
from judgefree.devices import device_of
from judgefree.errors import JudgefreeError
from judgefree.evaluation.loading import load_model
from judgefree.files import MANIFEST, code_hash, key_of, publish, read_json, require_space, seal, verify, writing
from judgefree.reward_model.model import (
    ValueAnchoredRewardModel,
    answered,
    fresh_value_head,
    load_classifier,
    load_tokenizer,
    messages,
    save_reward_model,
)  # fmt: skip
from judgefree.reward_model.pairs import PAIRS, Pair, load_pairs
from judgefree.reward_training.callback import PairsCallback
from judgefree.reward_training.values import fit_values, sample_policy
from judgefree.training.checkpoints import newest_valid, step_of
from judgefree.training.lock import alone_in
from judgefree.training.space import space_held

log = logging.getLogger(__name__)
hf_logging.disable_progress_bar()
warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)  # TRL 1.16's own use
PACKAGE = Path(__file__).parents[1]
CODE = (
    "data/splits.py", "data/tables.py", "devices.py", "episodes.py", "evaluation/loading.py", "files.py", "prompting.py",
    "reward_model", "reward_training", "sampling", "training/checkpoints.py", "training/lock.py", "training/progress.py",
    "training/space.py",
)  # fmt: skip
STOPPED = 128 + signal.SIGTERM  # the exit status, as of a run that a signal ended once all is saved
CHECKPOINTS = 2  # of stage 1 on the disk at most: the older one goes once the newer is whole


@dataclass(frozen=True)
class Job:
    name: str
    root: Path
    settings: RewardModelSettings
    prompt: PromptFormat
    key: str

    @property
    def work(self) -> Path:
        return self.root / ".work" / "reward_model" / self.key

    @property
    def checkpoints(self) -> Path:
        """Of stage 1, until that is done."""
        return self.work / "trainer"

    @property
    def data(self) -> Path:
        return self.root / "data" / self.settings.dataset

    @property
    def device(self) -> torch.device:
        return device_of(self.settings.device, f"reward_models.{self.name}.device")


def read_job(name: str, root: Path) -> Job:
    """Raises JudgefreeError when it is not resolved, or its inputs are missing or not as written."""
    resolved = read_json(root / "resolved" / "reward_model" / f"{name}.json")
    settings = RewardModelSettings.model_validate(resolved["reward_model"])
    start, policy = (verify(root / "models" / one)["files"] for one in (settings.start_from, settings.value_fit.policy))
    splits = read_json(root / "data" / settings.dataset / MANIFEST)["files"]
    if PAIRS not in splits:
        raise JudgefreeError(f"data set {settings.dataset} has no preference pairs ({PAIRS})",
                             "use one of kind ultrafeedback or hh_rlhf, or arithmetic with a section pairs")  # fmt: skip
    read = {file: splits[file] for file in ("train.parquet", PAIRS)}
    code = code_hash([PACKAGE / one for one in CODE])
    key = key_of("reward_model", resolved, start, policy, read, code)
    return Job(name, root, settings, PromptFormat.model_validate(resolved["prompt"]), key)


def build_reward_model(name: str, root: Path) -> Path:
    """Make models/<name> and return its path.

    Raises JudgefreeError for bad input, MayPass when another process makes it, SystemExit(143) after a SIGTERM or SIGINT in
    stage 1 once all of it that is done is saved.
    """
    job = read_job(name, root)
    with alone_in(job.work), writing(job.work):
        job.work.mkdir(parents=True, exist_ok=True)
        facts = train_pairs(job)
        final = job.work / "final"
        shutil.rmtree(final, ignore_errors=True)
        facts |= fit(job, final)
        shutil.copy(job.data / PAIRS, final / PAIRS)
        seal(
            final,
            {"kind": "reward_model", "key": job.key, "settings": job.settings.model_dump(exclude_none=True), **facts},
        )
        target = root / "models" / name
        publish(final, target)
    return target


# -------------------------------------------------------------------------------------------------------------- stage 1


def train_pairs(job: Job) -> dict[str, Any]:
    """Stage 1 into .work/.../classifier; returns what was measured on held-out pairs."""
    folder = job.work / "classifier"
    if (folder / MANIFEST).is_file():
        shutil.rmtree(job.checkpoints, ignore_errors=True)  # where a kill came before it
        return {name: value for name, value in verify(folder).items() if name != "files"}
    shutil.rmtree(folder, ignore_errors=True)
    start = job.root / "models" / job.settings.start_from
    torch.manual_seed(job.settings.seed)
    classifier, tokenizer = load_classifier(start, job.settings.seed), load_tokenizer(start)
    classifier.config.pad_token_id = tokenizer.pad_token_id
    model = ValueAnchoredRewardModel(
        classifier, fresh_value_head(classifier), tokenizer, job.settings.max_tokens, job.settings.precision == "bf16"
    )
    facts: dict[str, Any] = {}
    stop = False
    if training := job.settings.training:
        rows, cut = encoded_pairs(model, load_pairs(job.data / PAIRS))
        stop = learn_pairs(job, training, classifier, tokenizer, rows)
        facts = {"pairs": len(rows["chosen_ids"]), "cut_share": cut}
    model.to(job.device)
    facts["pair_accuracy"] = pair_accuracy(model, load_pairs(job.data / PAIRS, "validation"), job.settings.batch_tokens)
    save_reward_model(model, folder)
    seal(folder, facts)
    shutil.rmtree(job.checkpoints, ignore_errors=True)
    if stop:
        raise SystemExit(STOPPED)
    return facts


def learn_pairs(job: Job, training: PairTraining, classifier: Any, tokenizer: Any, rows: dict[str, Any]) -> bool:
    """The steps of stage 1, from the last checkpoint where there is one; whether a signal asked for a stop in the very last.

    Raises SystemExit where one did before, once a checkpoint is saved, JudgefreeError where that would not fit on the disk.
    """
    weights = sum(parameter.numel() * parameter.element_size() for parameter in classifier.parameters())
    # Of weights and Adam's two moments; what is there already needs no room.
    require_space(job.work, CHECKPOINTS * 3 * weights - space_held(job.checkpoints))
    watch = PairsCallback(job.name, job.checkpoints)
    trainer = RewardTrainer(
        model=classifier,
        args=arguments(job, training),
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(rows),
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    if checkpoint := newest_valid(job.checkpoints):
        log.warning("%s: pairs: going on from step %d of %d", job.name, step_of(checkpoint), training.steps)
    with watch.listening():
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if watch.asked and trainer.state.global_step < training.steps:
        raise SystemExit(STOPPED)
    return watch.asked


def encoded_pairs(model: ValueAnchoredRewardModel, pairs: list[Pair]) -> tuple[dict[str, list[list[int]]], float]:
    """TRL's columns, and the share of conversations that were cut."""
    encoded = [[model.encode(side) for side in pair.conversations()] for pair in pairs]
    cut = sum(was_cut for sides in encoded for _, was_cut in sides) / (2 * len(pairs))
    return {"chosen_ids": [sides[0][0] for sides in encoded], "rejected_ids": [sides[1][0] for sides in encoded]}, cut


def arguments(job: Job, training: PairTraining) -> RewardConfig:
    """Our settings in TRL's words; conversations are encoded, so nothing is cut here."""
    if training.batch_size % training.micro_batches:
        raise JudgefreeError(
            f"reward_models.{job.name}.training: {training.batch_size} pairs cannot be split into {training.micro_batches} "
            "equal parts", "change batch_size or micro_batches",
        )  # fmt: skip
    return RewardConfig(
        output_dir=str(job.checkpoints), seed=job.settings.seed, data_seed=job.settings.seed, max_steps=training.steps,
        per_device_train_batch_size=training.batch_size // training.micro_batches,
        gradient_accumulation_steps=training.micro_batches, learning_rate=training.learning_rate,
        lr_scheduler_type=training.schedule, warmup_steps=round(training.warmup_share * training.steps),
        weight_decay=training.weight_decay, max_grad_norm=training.max_grad_norm, optim="adamw_torch",
        bf16=job.settings.precision == "bf16", use_cpu=job.device.type == "cpu",
        gradient_checkpointing=bool(training.gradient_checkpointing), max_length=None, logging_steps=10,
        save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=job.device.type != "cpu",
    )  # fmt: skip


def pair_accuracy(model: ValueAnchoredRewardModel, pairs: list[Pair], batch_tokens: int) -> float:
    """Share of pairs whose chosen response has the higher reward; equal rewards are wrong."""
    rows = [model.encode(side)[0] for pair in pairs for side in pair.conversations()]
    scores = np.asarray(model.read(model.rewards, rows, batch_tokens)).reshape(-1, 2)
    return float((scores[:, 0] > scores[:, 1]).mean())


# -------------------------------------------------------------------------------------------------------------- stage 2


def fit(job: Job, final: Path) -> dict[str, float]:
    """Stage 2: writes the whole reward model into `final`; returns the errors of the fit."""
    settings, half = job.settings, job.settings.precision == "bf16"
    examples = load_split(job.data, "train", limit=settings.value_fit.prompts)
    policy, tokenizer = load_model(
        job.root / "models" / settings.value_fit.policy,
        settings.device,
        settings.precision,
        f"reward_models.{job.name}.device",
    )
    responses = sample_policy(policy, tokenizer, examples, job.prompt, settings.value_fit, settings.seed)
    del policy
    classifier = load_classifier(job.work / "classifier", settings.seed)
    model = ValueAnchoredRewardModel(
        classifier, fresh_value_head(classifier), load_tokenizer(job.work / "classifier"), settings.max_tokens, half
    ).to(job.device)
    heads = [messages(job.prompt, example.question) for example in examples]
    rows = [
        model.encode(answered(head, one.text))[0] for head, group in zip(heads, responses, strict=True) for one in group
    ]
    rewards = np.asarray(model.read(model.rewards, rows, settings.batch_tokens)).reshape(len(examples), -1)
    facts = fit_values(
        model, [model.encode(head)[0] for head in heads], rewards.mean(-1).tolist(), settings.value_fit,
        settings.batch_tokens, settings.seed,
    )  # fmt: skip
    save_reward_model(model.cpu(), final)
    return facts | {"reward_mean": float(rewards.mean()), "reward_std": float(rewards.std(axis=1, ddof=1).mean())}
