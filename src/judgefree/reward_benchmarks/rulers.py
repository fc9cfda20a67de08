"""What anyone can score by without reading: shown beside every reward model, for a benchmark that a ruler does well on
measures little, and a model that agrees with a ruler has learnt little."""

from collections.abc import Mapping, Sequence

from judgefree.episodes import stream_seed
from judgefree.reward_benchmarks.items import Conversation, Scorer


def length(conversations: Sequence[Conversation]) -> list[float]:
    """Characters of the response: the longest wins."""
    return [float(len(conversation[-1]["content"])) for conversation in conversations]


def length_short(conversations: Sequence[Conversation]) -> list[float]:
    """The shortest wins."""
    return [-characters for characters in length(conversations)]


def random_ruler(seed: int) -> Scorer:
    """A number from [0, 1) that depends on the seed and the conversation's text alone."""

    def score(conversations: Sequence[Conversation]) -> list[float]:
        return [
            stream_seed(seed, "random ruler", *(text for message in conversation for text in message.values())) / 2**63
            for conversation in conversations
        ]

    return score


def rulers(seed: int) -> Mapping[str, Scorer]:
    return {"length": length, "length_short": length_short, "random": random_ruler(seed)}
