"""Our training settings in the words of Transformers' and TRL's argument classes."""

import math
from pathlib import Path
from typing import Any

from peft import LoraConfig
from trl import GRPOConfig, SFTConfig

from judgefree.config import Training


def common_arguments(training: Training, work: Path, seed: int) -> dict[str, Any]:
    """Arguments that both trainers share. Nothing phones home, nothing is logged twice, no model card is pushed."""
    return {
        "output_dir": str(work),
        "seed": seed,
        "data_seed": seed,
        "max_steps": training.steps,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.schedule,
        "warmup_steps": round(training.warmup_share * training.steps),
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.max_grad_norm,
        "optim": "adamw_torch",
        "bf16": training.precision == "bf16",
        "use_cpu": training.device == "cpu",
        "gradient_checkpointing": bool(training.gradient_checkpointing),
        "dataloader_pin_memory": training.device != "cpu",
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": training.save_every,
        "save_total_limit": None,
        "report_to": "none",
        "disable_tqdm": True,
        "push_to_hub": False,
        "ddp_timeout": 7200,
    }


def episode_arguments(training: Training, work: Path, seed: int) -> GRPOConfig:
    """TRL's own batch arithmetic is not used; the numbers here only have to satisfy its checks. Rows per device times
    micro-batches is what it lets vLLM sample at once: all rows of a rollout."""
    rows = training.rollout_size // training.processes
    arguments: dict[str, Any] = {
        **common_arguments(training, work, seed),
        "per_device_train_batch_size": 2 * math.ceil(rows / training.micro_batches / 2),
        "num_generations": 2,
        "gradient_accumulation_steps": training.micro_batches,
        "steps_per_generation": training.micro_batches,
        "max_completion_length": training.sampling.max_completion_tokens,
        "temperature": training.sampling.temperature,
        "top_p": 1.0 if training.sampling.top_p is None else training.sampling.top_p,
        "top_k": training.sampling.top_k or 0,
        "beta": training.loss.kl_weight,
        "disable_dropout": True,
        "ignore_data_skip": True,
    }
    if training.precision == "bf16":
        arguments["model_init_kwargs"] = {"dtype": "bfloat16"}  # of the reference model, which is not trained
    if training.vllm is not None:
        arguments |= {
            "use_vllm": True,
            "vllm_mode": training.vllm.mode,
            "vllm_gpu_memory_utilization": training.vllm.memory_share,
            "vllm_max_model_length": training.max_prompt_tokens + training.sampling.max_completion_tokens,
            "vllm_importance_sampling_correction": False,  # the correction is a part of our own loss
        }
    return GRPOConfig(**arguments)


def sft_arguments(training: Training, work: Path, seed: int, batch_size: int) -> SFTConfig:
    return SFTConfig(
        **common_arguments(training, work, seed),
        per_device_train_batch_size=training.micro_batch_of(batch_size),
        gradient_accumulation_steps=training.micro_batches,
        max_length=training.max_prompt_tokens + training.sampling.max_completion_tokens,
        completion_only_loss=True,
        dataset_kwargs={"skip_prepare_dataset": True},
        loss_type="nll",
        packing=False,
    )


def lora_config(training: Training) -> LoraConfig | None:
    if training.lora is None:
        return None
    return LoraConfig(
        r=training.lora.rank,
        lora_alpha=training.lora.alpha,
        lora_dropout=training.lora.dropout,
        target_modules=training.lora.target_modules,
        task_type="CAUSAL_LM",
    )
