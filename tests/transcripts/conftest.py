"""Records in the schema of SpyRL, made by hand: games whose votes, rewards and spans are known."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

SOURCE = (
    "MEMO to all regional offices. The water board will close the pumping station at Harrow Lane on 14 March for eleven "
    "days. During that time 2,300 households receive water from the northern reservoir, at reduced pressure between "
    "six and nine in the evening. The works cost 418,000 and are paid from the renewal fund. Offices answer calls until "
    "ten at night; tanker lorries stand by in Mill Street. The board meets again on 2 April to decide about the second "
    "station."
)


def game_rows(
    outputs: Sequence[str],
    votes: Sequence[int | str],
    spy: int,
    *,
    step: int = 0,
    game: str = "train-000001",
    source: str = SOURCE,
    span: tuple[int, int] = (60, 120),
    stage: str = "performing",
    said: str = "The outputs agree but for one.\n\\boxed{1}",
) -> list[dict[str, Any]]:
    """A game's rows. votes: by detector, the seat voted for or the kind of a vote that names none. Rewards are the paper's
    with beta = lambda = 0.1."""
    n = len(outputs)
    received = [sum(vote == seat for vote in votes) for seat in range(n)]
    civilians = [count for seat, count in enumerate(received) if seat != spy]
    mean = sum(civilians) / len(civilians)
    gain = 0.1 * (received[spy] - mean)
    rows = []
    for seat, output in enumerate(outputs):
        reward = -gain if seat == spy else gain / (n - 1) - 0.1 * (received[seat] - mean)
        rows.append({
            "step": step, "prompt_id": game, "role": "performer", "slot": seat, "stage": stage, "spy": spy,
            "text": f"I write what the memo says, shortly.\nAnswer: {output}", "output": output,
            "source": source if seat == 0 else None, "span_start": span[0], "span_end": span[1], "vote": None,
            "vote_kind": None, "votes": received[seat], "reward": reward, "advantage": reward, "finish_reason": "stop",
            "tokens": len(output.split()) + 9,
        })  # fmt: skip
    for seat, vote in enumerate(votes):
        named = vote if isinstance(vote, int) else None
        right = float(named == spy)
        rows.append({
            "step": step, "prompt_id": game, "role": "detector", "slot": seat, "stage": stage, "spy": spy, "text": said,
            "output": None, "source": None, "span_start": span[0], "span_end": span[1], "vote": named,
            "vote_kind": "vote" if named is not None else vote, "votes": None, "reward": right, "advantage": right - 0.5,
            "finish_reason": "stop", "tokens": 12,
        })  # fmt: skip
    return rows


@pytest.fixture
def game() -> Callable[..., list[dict[str, Any]]]:
    return game_rows
