"""A trained model as MLflow keeps it, in the transformers flavour, and asked again from there.

Loaded as `mlflow.pyfunc` it takes plain questions: the task's prompt stands in the model and decoding is greedy, so a
user sees what the evaluation measured. Loaded as a pipeline it is what transformers makes of the same files.
"""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import torch
from mlflow.entities import LoggedModel, LoggedModelOutput
from mlflow.models import ModelSignature
from mlflow.types.schema import ColSpec, Schema
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as hf_logging

from judgefree.config import PromptFormat, Suite
from judgefree.errors import JudgefreeError
from judgefree.evaluation.loading import load_model
from judgefree.files import key_of, pretty_json, read_json, seal, write_atomic
from judgefree.prompting import inert_messages
from judgefree.registry.facts import ModelFacts
from judgefree.registry.place import local_path
from judgefree.registry.store import Store
from judgefree.reward_model.model import SETTINGS, VALUE_HEAD

hf_logging.disable_progress_bar()
logging.getLogger("mlflow.transformers").setLevel(logging.ERROR)  # it warns of a licence that it could not find
log = logging.getLogger(__name__)
_SLOT = "{question}"
_SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_TEXT = Schema([ColSpec("string")])


def log_model(
    store: Store,
    model: ModelFacts,
    folder: Path,
    run_id: str,
    prompt: PromptFormat,
    max_tokens: int,
    tags: dict[str, str],
) -> str:
    """Write models/<name> as an MLflow LoggedModel with these tags; returns its id once it is whole."""
    tokenizer = AutoTokenizer.from_pretrained(folder, **_SAFE)
    weights: Any = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, dtype="auto", **_SAFE)
    logged = store.client.create_logged_model(store.experiment_id, model.name, run_id, tags=tags)
    return _log(
        store, model, logged, weights, tokenizer, "text-generation", ModelSignature(_TEXT, _TEXT),
        prompt_template=prompt_template(tokenizer, prompt), metadata={"judgefree.prompt": prompt.model_dump()},
        model_config=generation_of(prompt, max_tokens),
    )  # fmt: skip


def log_reward_model(store: Store, model: ModelFacts, folder: Path, run_id: str, tags: dict[str, str]) -> str:
    """The same of a reward model: a sequence classifier, whose score is the plain reward, and beside its weights the value
    head and what it is read with, so that `reward_model.model.load_reward_model` takes the files as they are."""
    tokenizer = AutoTokenizer.from_pretrained(folder, **_SAFE)
    weights: Any = AutoModelForSequenceClassification.from_pretrained(
        folder, use_safetensors=True, dtype="auto", **_SAFE
    )
    logged = store.client.create_logged_model(store.experiment_id, model.name, run_id, tags=tags)
    beside = local_path(logged.artifact_location) / "model"
    beside.mkdir(parents=True)
    for file in (VALUE_HEAD, SETTINGS):  # before the rest: what is whole has them
        shutil.copy(folder / file, beside / file)
    scored = Schema([ColSpec("string", "label"), ColSpec("double", "score")])
    return _log(
        store, model, logged, weights, tokenizer, "text-classification", ModelSignature(_TEXT, scored),
        model_config={"function_to_apply": "none"},
    )  # fmt: skip


def _log(
    store: Store, model: ModelFacts, logged: LoggedModel, weights: Any, tokenizer: Any, task: str,
    signature: ModelSignature, **flavour: Any,
) -> str:  # fmt: skip
    import mlflow.transformers
    from huggingface_hub import ModelCard

    # MLflow would ask the hub for the card and the licence of what looks like a repository's name; this does not.
    weights.name_or_path = weights.config._name_or_path = f"judgefree: {model.name}"
    card = ModelCard(
        f"---\nlicense: other\n---\n# {model.name}\n\n{model.title}, seed {model.seed}. Key {model.key}.\n"
    )
    mlflow.transformers.log_model(
        {"model": weights, "tokenizer": tokenizer}, task=task, model_id=logged.model_id, model_card=card,
        pip_requirements=[f"{name}=={installed(name).split('+')[0]}" for name in ("torch", "transformers", "accelerate")],
        signature=signature, **flavour,
    )  # fmt: skip
    (local_path(logged.artifact_location) / "LICENSE.txt").unlink()  # it names a page of the hub that is not there
    store.client.log_outputs(logged.source_run_id, [LoggedModelOutput(logged.model_id, model.selected_step)])
    return str(logged.model_id)


@contextmanager
def files_of(packed: Path) -> Iterator[Path]:
    """The files of a registered model (an MLflow model's folder) as Transformers wants them, in one folder."""
    with tempfile.TemporaryDirectory() as place:
        for part in ("model", "components/tokenizer"):
            for file in (packed / part).iterdir():
                (Path(place) / file.name).symlink_to(file)
        yield Path(place)


def generation_of(prompt: PromptFormat, max_tokens: int) -> dict[str, Any]:
    """How the pyfunc generates: as the evaluation does, but that a stop string stays at the end of the text."""
    stop = {"stop_sequence": list(prompt.stop)} if prompt.stop else {}
    return {"max_new_tokens": max_tokens, "do_sample": False, "return_full_text": False,
            "add_special_tokens": not prompt.chat, **stop}  # fmt: skip


def prompt_template(tokenizer: Any, prompt: PromptFormat) -> str:
    """The task's prompt around `{prompt}`, every other brace doubled, as MLflow formats it."""
    text = prompt.template.replace(_SLOT, "\0")
    if prompt.chat:
        messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
        messages = inert_messages(tokenizer, [*messages, {"role": "user", "content": text}])
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text.replace("{", "{{").replace("}", "}}").replace("\0", "{prompt}")


def answer_again(root: Path, packed: Path, facts: dict[str, Any], content: str, target: Path, workers: int) -> None:
    """Write a suite's report of a registered model to `target`: the model in `packed` (an MLflow model's folder)
    answers the present test items under another report's `facts`.

    Raises JudgefreeError when data/ has other test items than those facts name.
    """
    from judgefree.data.heldout import load_test
    from judgefree.evaluation.suites import run_suite
    from judgefree.scoring.grader import Grader

    suite = Suite.model_validate(facts["suite"])
    data = root / "data" / suite.dataset
    if read_json(data / "manifest.json")["files"]["test.parquet"]["sha256"] != facts["test_sha256"]:
        raise JudgefreeError(f"{data} is not what the candidate was tested on", "run `dvc repro`")
    log.warning("the champion answers %s again, since its settings, items or code have changed", target.name)
    torch.set_num_threads(facts["threads"])
    with files_of(packed) as whole:
        model, tokenizer = load_model(
            whole, suite.device or "cpu", suite.precision or "fp32", f"suites.{target.name}.device"
        )
        with Grader(workers, facts["grading_timeout_s"]) as grader:
            items, metrics = run_suite(
                model,
                tokenizer,
                load_test(data, suite.items),
                suite,
                PromptFormat.model_validate(facts["prompt"]),
                grader,
                facts.get("texts", {}),
            )
    made_from = {name: value for name, value in facts.items() if name not in ("key", "files")} | {
        "model_sha256": content
    }
    shutil.rmtree(target, ignore_errors=True)
    write_atomic(target / "items.parquet", items.to_parquet(index=False))
    write_atomic(target / "metrics.json", pretty_json(metrics))
    seal(target, {"key": key_of(made_from), **made_from})
