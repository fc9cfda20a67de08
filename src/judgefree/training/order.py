"""Which examples a rollout is made of: a pure function of the seed and the rollout's number, so resume needs no state."""

import numpy as np

from judgefree.episodes import stream_seed
from judgefree.errors import JudgefreeError


def examples_at(rollout: int, available: int, wanted: int, seed: int) -> list[int]:
    """Indices of the `wanted` distinct examples of rollout number `rollout`.

    Every epoch is a permutation of its own, read in whole rollouts; what is left at its end (fewer than `wanted`)
    waits for the next one, so that no rollout holds an example twice. Raises JudgefreeError if there are too few.
    """
    if available < wanted:
        raise JudgefreeError(
            f"a rollout wants {wanted} examples (rollout_size / group_size), the train split has {available}",
            "lower training.rollout_size or prepare more training rows",
        )
    epoch, place = divmod(rollout, available // wanted)
    order = np.random.default_rng(stream_seed(seed, epoch, "examples")).permutation(available)
    return [int(i) for i in order[place * wanted : (place + 1) * wanted]]
