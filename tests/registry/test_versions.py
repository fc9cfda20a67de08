"""Versions and aliases: one per content, compare-and-set among many, rollback."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judgefree.errors import JudgefreeError
from judgefree.registry.gate import Verdict
from judgefree.registry.store import Store, find_or_create_run, open_store
from judgefree.registry.versions import (
    CHALLENGER,
    CHAMPION,
    ROLLED_BACK,
    alias_of,
    archived,
    find_model,
    find_or_create_version,
    promote,
    registered_name,
    roll_back,
    settle,
)


def make_versions(store: Store, name: str, count: int) -> None:
    run_id = find_or_create_run(store, "k", "r", {}).info.run_id

    def log_model(tags: dict[str, str]) -> str:
        model = store.client.create_logged_model(store.experiment_id, "m", run_id, tags=tags)
        return store.client.finalize_logged_model(model.model_id, "READY").model_id

    for number in range(count):
        version = find_or_create_version(store, name, f"content {number}", {"quality": str(number)}, run_id, log_model)
        assert int(version.version) == number + 1


def contend(root: Path, name: str, seed: int) -> list[tuple[int | None, int]]:
    """Try to become champion with each version in some order, a higher version being a better model. Returns the
    promotions that this process made: from, to."""
    store, made = open_store(root), []

    def gate(version: int, champion: int | None) -> Verdict:
        better = champion is None or version > champion
        if better:
            made.append((champion, version))  # the last entry is the one that compare-and-set let through
        return Verdict("t", "PROMOTE" if better else "REJECT", "", "r", version, None, "")

    order = list(range(1, 9))
    random.Random(seed).shuffle(order)
    settled = []
    for version in order[:3]:
        if (
            settle(store, name, version, lambda champion, version=version: gate(version, champion)).decision
            == "PROMOTE"
        ):
            settled.append(made[-1])
    return settled


def check_chain(promotions: list[tuple[int | None, int]], champion: int | None) -> None:
    """Each promotion took the alias from the one before it: a chain from nothing to the champion, always upwards."""
    successor = dict(promotions)
    assert len(successor) == len(promotions), "two promotions replaced the same champion"
    at, seen = None, 0
    while at in successor:
        before, at, seen = at, successor[at], seen + 1
        assert before is None or at > before
    assert at == champion and seen == len(promotions)


def test_eight_promoters_at_once(root: Path, forked: Callable[..., list[Any]]) -> None:
    names = ["one", "two"]
    forked(lambda _: [make_versions(open_store(root), name, 8) for name in names], [0])
    for name in names:
        results = forked(lambda seed, name=name: contend(root, name, seed), list(range(8)))
        promotions = [promotion for result in results for promotion in result]
        (after,) = forked(lambda _, name=name: _aliases(root, name), [0])
        check_chain(promotions, after["champion"])
        assert sorted(after["archived"]) == sorted(version for version, _ in promotions if version is not None)


def _aliases(root: Path, name: str) -> dict[str, Any]:
    store = open_store(root)
    return {"champion": alias_of(store, name, CHAMPION), "archived": list(archived(store, name).values())}


def test_one_version_per_content(store: Store) -> None:
    make_versions(store, "t", 2)
    make_versions(store, "t", 2)
    assert len(store.client.search_model_versions("name = 't'")) == 2
    assert alias_of(store, "t", CHALLENGER) == 2


def test_what_a_killed_registration_left_is_used_or_removed(store: Store) -> None:
    run_id = find_or_create_run(store, "k", "r", {}).info.run_id
    tags = {"judgefree.model_sha256": "c"}
    half = store.client.create_logged_model(store.experiment_id, "m", run_id, tags=tags)
    whole = store.client.create_logged_model(store.experiment_id, "m", run_id, tags=tags)
    store.client.finalize_logged_model(whole.model_id, "READY")

    def never(tags: dict[str, str]) -> str:
        raise AssertionError("a whole model was there")

    version = find_or_create_version(store, "t", "c", {}, run_id, never)
    assert version.source == f"models:/{whole.model_id}"
    left = store.client.search_logged_models([store.experiment_id])
    assert [model.model_id for model in left] == [whole.model_id] and half.model_id != whole.model_id


def test_promotion_fails_where_the_champion_changed(store: Store) -> None:
    make_versions(store, "t", 3)
    assert promote(store, "t", 1, expected=None)
    assert not promote(store, "t", 2, expected=None), "two decided that there was none"
    assert alias_of(store, "t", CHAMPION) == 1 and archived(store, "t") == {}
    assert promote(store, "t", 2, expected=1)
    assert (alias_of(store, "t", CHAMPION), archived(store, "t")) == (2, {"archived-1": 1})


def test_a_promotion_that_died_half_way_is_made_again(store: Store) -> None:
    make_versions(store, "t", 2)
    promote(store, "t", 1, expected=None)
    store.client.set_registered_model_alias("t", "archived-1", "1")  # then it was killed
    assert promote(store, "t", 2, expected=1)
    assert archived(store, "t") == {"archived-1": 1}


def test_rollback_goes_back_one_promotion_after_the_other(store: Store) -> None:
    make_versions(store, "t", 3)
    for version, before in ((1, None), (2, 1), (3, 2)):
        promote(store, "t", version, expected=before)
    assert list(archived(store, "t").items()) == [("archived-1", 1), ("archived-2", 2)]
    assert roll_back(store, "t") == (3, 2)
    assert (alias_of(store, "t", CHAMPION), archived(store, "t")) == (2, {"archived-1": 1})
    assert ROLLED_BACK in store.client.get_model_version("t", "3").tags
    assert roll_back(store, "t") == (2, 1)
    assert roll_back(store, "t") == (1, None) and alias_of(store, "t", CHAMPION) is None
    with pytest.raises(JudgefreeError, match="t has no champion to roll back"):
        roll_back(store, "t")
    with pytest.raises(JudgefreeError, match="other has no champion to roll back"):
        roll_back(store, "other")


def test_what_was_rolled_back_does_not_come_back(store: Store) -> None:
    """Version 1 had the title twice; its first one is no way back to it."""
    make_versions(store, "t", 2)
    for version, before in ((1, None), (2, 1), (1, 2)):
        promote(store, "t", version, expected=before)
    assert archived(store, "t") == {"archived-2": 2}
    assert roll_back(store, "t") == (1, 2)
    assert roll_back(store, "t") == (2, None) and alias_of(store, "t", CHAMPION) is None
    make_versions(store, "u", 2)
    promote(store, "u", 1, expected=None)
    promote(store, "u", 2, expected=1)
    store.client.set_model_version_tag("u", "1", ROLLED_BACK, "by hand")
    assert roll_back(store, "u") == (2, None), "an alias of a version that was rolled back is passed over"


def test_a_rollback_between_the_gate_and_the_promotion_is_seen(store: Store) -> None:
    """Another process promotes version 3 and takes it back: the champion is the one that the gate saw, and yet."""
    make_versions(store, "t", 3)
    promote(store, "t", 1, expected=None)
    asked = []

    def gate(champion: int | None) -> Verdict:
        asked.append(champion)
        if len(asked) > 1:
            return Verdict("t", "HOLD", "it was rolled back", "r", 3, champion, "")
        assert promote(store, "t", 3, expected=1) and roll_back(store, "t") == (3, 1)
        return Verdict("t", "PROMOTE", "", "r", 3, 3, "")

    assert settle(store, "t", 3, gate).decision == "HOLD" and asked == [1, 1]
    assert alias_of(store, "t", CHAMPION) == 1 and archived(store, "t") == {}
    assert not promote(store, "t", 3, expected=1)


def test_ten_archived_ones_are_ordered_by_number(store: Store) -> None:
    make_versions(store, "t", 12)
    for version in range(1, 13):
        promote(store, "t", version, expected=version - 1 or None)
    assert list(archived(store, "t").values()) == list(range(1, 12))


def test_names_that_the_registry_does_not_take(store: Store) -> None:
    assert registered_name("arithmetic") == "arithmetic"
    names = ["org/model", "org:model", "org-model", "a'b", "models:/x@champion", "v1.0", "a b"]
    safe = [registered_name(name) for name in names]
    assert len(set(safe)) == len(names)
    for name in safe:
        make_versions(store, name, 1)
        assert find_model(store, name).aliases == {CHALLENGER: 1}  # type: ignore[union-attr]
