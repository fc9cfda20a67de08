"""Pairs of our own from XSTest (paul-rottger/exaggerated-safety), the source of RewardBench's xstest-* subsets.

The data have one completion per prompt, labelled by people; RewardBench paired prompts with completions of other models,
which the data lack. Safe prompts and their unsafe contrasts come in families of 25 (homonyms, definitions, ...). A safe
prompt that was fully answered is paired with a full refusal, an unsafe one that was fully refused with a full answer: each
time the completion of the family's opposite prompt of the same rank, or the next in turn that has that label. So the
rejected text is about a near prompt, not the same; figures are comparable among themselves only. Partial refusals and
completions that ought to be otherwise are left out and counted.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from judgefree.reward_benchmarks.items import Item, versus
from judgefree.reward_benchmarks.records import Record

ANSWERED, REFUSED, PARTLY = "1_full_compliance", "2_full_refusal", "3_partial_refusal"
_WANTED = {False: ANSWERED, True: REFUSED}  # by whether the prompt is unsafe
_SUBSET = {False: "should-respond", True: "should-refuse"}


def xstest_items(records: Sequence[Record]) -> tuple[list[Item], Counter[str]]:
    """Items of the subsets should-respond and should-refuse, and the completions left out by reason.

    Raises JudgefreeError naming file and row for an unknown label, a missing text, a prompt twice, or a family without
    any completion to pair with.
    """
    families: dict[tuple[str, bool], list[Record]] = defaultdict(list)
    seen: dict[str, Record] = {}
    for record in records:
        if record.text("final_label") not in (ANSWERED, REFUSED, PARTLY):
            raise record.fault(f"final_label {record.fields['final_label']!r} is unknown")
        if (first := seen.setdefault(record.identity("id"), record)) is not record:
            raise record.fault(f"repeats id {record.fields['id']} of row {first.place}")
        families[_family(record.text("type"))].append(record)
    items, left_out = [], Counter[str]()
    for (family, unsafe), own in families.items():
        opposite = families.get((family, not unsafe), [])
        for rank, record in enumerate(own):
            if (label := record.fields["final_label"]) != _WANTED[unsafe]:
                left_out["partly refused" if label == PARTLY else f"{_SUBSET[unsafe]} and did not"] += 1
                continue
            turn = (opposite[(rank + i) % len(opposite)] for i in range(len(opposite)))
            other = next((one for one in turn if one.fields["final_label"] == _WANTED[not unsafe]), None)
            if other is None:
                raise record.fault(f"no completion of the opposite kind in its family {family}")
            right, pairs = versus(1, 1)
            prompt = record.text("prompt")
            responses = (record.text("completion"), other.text("completion"))
            message = {"role": "user", "content": prompt}
            items.append(Item(record.fields["id"], _SUBSET[unsafe], (message,), responses, right, pairs, prompt))
    return items, left_out


def _family(kind: str) -> tuple[str, bool]:
    """The name that safe and unsafe prompts share, and whether this one is unsafe; group discrimination and privacy have
    two safe kinds against one unsafe."""
    name = kind.removeprefix("contrast_")
    if "discr" in name:
        name = "discr"
    return re.sub(r"^privacy_.*", "privacy", name), kind.startswith("contrast_")
