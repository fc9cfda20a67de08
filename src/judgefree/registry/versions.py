"""Versions and aliases of a task's registered model: one version per content, promoted by compare-and-set.

Aliases: `champion` stands; `challenger` is under consideration or held; `archived-<n>` are former champions, the
highest n the latest. Every change of an alias and every creation stands under the task's lock.
"""

import hashlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from mlflow.entities.model_registry import ModelVersion, RegisteredModel

from judgefree.errors import JudgefreeError
from judgefree.registry.gate import Verdict
from judgefree.registry.place import local_path
from judgefree.registry.store import Store

CHAMPION, CHALLENGER, ARCHIVED = "champion", "challenger", "archived-"
CONTENT, ROLLED_BACK = "judgefree.model_sha256", "judgefree.rolled_back"


def registered_name(name: str) -> str:
    """A name that the registry takes (no `/`, `:` or others that its addresses use); names that differ stay so."""
    safe = re.sub(r"[^\w-]", "-", name, flags=re.ASCII)
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def find_model(store: Store, name: str) -> RegisteredModel | None:
    found = store.client.search_registered_models(f"name = '{name}'")
    return found[0] if found else None


def alias_of(store: Store, name: str, alias: str) -> int | None:
    """The version that an alias names."""
    model = find_model(store, name)
    return int(model.aliases[alias]) if model and alias in model.aliases else None


def find_or_create_version(
    store: Store, name: str, content: str, tags: dict[str, str], run_id: str, log_model: Callable[[dict[str, str]], str]
) -> ModelVersion:
    """The version with this content, made where there is none; named challenger unless it is champion or was rolled back.

    log_model: writes the model as an MLflow LoggedModel with the given tags and returns its id. It is called only where
    no whole one is left from an attempt that died before its version stood; halves of such attempts are removed.
    """
    client = store.client
    with store.locked(f"task-{name}"):
        if find_model(store, name) is None:
            client.create_registered_model(name)
        if same := client.search_model_versions(f"name = '{name}' AND tags.`{CONTENT}` = '{content}'"):
            return _challenge(store, same[0])
        left = client.search_logged_models([store.experiment_id], f"tags.`{CONTENT}` = '{content}'")
        whole = [model.model_id for model in left if model.status == "READY" and model.source_run_id == run_id]
        for model in left:
            if model.status != "READY":
                client.delete_logged_model(model.model_id)
                shutil.rmtree(local_path(model.artifact_location), ignore_errors=True)
        model_id = whole[0] if whole else log_model({CONTENT: content})
        version = client.create_model_version(
            name, f"models:/{model_id}", run_id, tags={**tags, CONTENT: content}, model_id=model_id
        )
        return _challenge(store, version)


def settle(store: Store, name: str, version: int, gate: Callable[[int | None], Verdict]) -> Verdict:
    """Let the gate decide against the present champion and act on it; asked again whenever another process, or a person
    in the UI, changed the champion meanwhile."""
    while True:
        champion = alias_of(store, name, CHAMPION)
        verdict = gate(champion)
        if verdict.decision != "PROMOTE":
            if verdict.decision == "REJECT":
                _drop_alias(store, name, CHALLENGER, version)
            return verdict
        if promote(store, name, version, expected=champion):
            return verdict


def promote(store: Store, name: str, version: int, expected: int | None) -> bool:
    """Make a version champion if `expected` still is and the version was not rolled back meanwhile; False, and nothing
    changed, where that is not so.

    Raises JudgefreeError when the alias does not read back as written.
    """
    with store.locked(f"task-{name}"):
        if alias_of(store, name, CHAMPION) != expected or _rolled_back(store, name, version):
            return False
        if expected is not None:
            _archive(store, name, expected)
        _crown(store, name, version)
    _drop_alias(store, name, CHALLENGER, version)
    return True


def roll_back(store: Store, name: str) -> tuple[int, int | None]:
    """Champion becomes the champion before it, or nothing where it was the first; returns both numbers, from and to. The
    version that goes is tagged, so that no later night promotes it again.

    Raises JudgefreeError where there is no champion.
    """
    with store.locked(f"task-{name}"):
        champion = alias_of(store, name, CHAMPION)
        if champion is None:
            raise JudgefreeError(
                f"{name} has no champion to roll back", "there is one after `judgefree register` promoted a version"
            )
        former = [version for version in archived(store, name).values() if version != champion]
        earlier = [version for version in former if not _rolled_back(store, name, version)]
        store.client.set_model_version_tag(
            name, str(champion), ROLLED_BACK, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        )
        if not earlier:
            store.client.delete_registered_model_alias(name, CHAMPION)
            return champion, None
        _crown(store, name, earlier[-1])
        return champion, earlier[-1]


def archived(store: Store, name: str) -> dict[str, int]:
    """Aliases of former champions and their versions, the earliest first."""
    model = find_model(store, name)
    aliases = model.aliases if model else {}
    ours = sorted(
        (a for a in aliases if re.fullmatch(rf"{ARCHIVED}\d+", a)), key=lambda a: int(a.removeprefix(ARCHIVED))
    )
    return {alias: int(aliases[alias]) for alias in ours}


def model_folder(store: Store, version: ModelVersion) -> Path:
    """Where the version's files lie."""
    return local_path(store.client.get_model_version_download_uri(version.name, version.version))


def _challenge(store: Store, version: ModelVersion) -> ModelVersion:
    if alias_of(store, version.name, CHAMPION) != int(version.version) and ROLLED_BACK not in version.tags:
        store.client.set_registered_model_alias(version.name, CHALLENGER, version.version)
    return version


def _archive(store: Store, name: str, version: int) -> None:
    before = archived(store, name)
    if before and list(before.values())[-1] == version:
        return  # an attempt that died had come this far
    number = 1 + max((int(alias.removeprefix(ARCHIVED)) for alias in before), default=0)
    store.client.set_registered_model_alias(name, f"{ARCHIVED}{number}", str(version))


def _rolled_back(store: Store, name: str, version: int) -> bool:
    return ROLLED_BACK in store.client.get_model_version(name, str(version)).tags


def _crown(store: Store, name: str, version: int) -> None:
    """Champion, and no former one: an older title of its own would come back at a rollback."""
    store.client.set_registered_model_alias(name, CHAMPION, str(version))
    if (found := alias_of(store, name, CHAMPION)) != version:
        raise JudgefreeError(f"alias {CHAMPION} of {name} reads {found} right after {version} was written",
                             "another program changes aliases; stop it and register again")  # fmt: skip
    for alias, former in archived(store, name).items():
        if former == version:
            store.client.delete_registered_model_alias(name, alias)


def _drop_alias(store: Store, name: str, alias: str, version: int) -> None:
    with store.locked(f"task-{name}"):
        if alias_of(store, name, alias) == version:
            store.client.delete_registered_model_alias(name, alias)
