"""The verdict on a prepared data set: Great Expectations suites built in code, one validation per split, one over the facts
of the whole, and one over preference pairs. The verdict is written in a compact form of our own, without clock, paths or
rows."""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from judgefree.config_data import Quality
from judgefree.config_texts import TextQuality
from judgefree.errors import JudgefreeError
from judgefree.files import canonical_json

# Read when the library is imported; it would call home otherwise, and stall where there is no network.
os.environ["GX_ANALYTICS_ENABLED"] = "false"
Verdict = dict[str, list[dict[str, Any]]]
PAIRS_PART = "pairs"  # of a verdict: its expectations have no limits that params.yaml could change
_PAIR_COLUMNS = ["id", "split", "chosen_words", "rejected_words", "prompt_words", "equal", "wrong_roles", "overlap"]


def validate(splits: Mapping[str, Sequence[Mapping[str, Any]]], sizes: Mapping[str, tuple[int, int]],
             facts: Sequence[Mapping[str, Any]], limits: Quality | TextQuality,
             referenced: bool = True) -> Verdict:  # fmt: skip
    """Judge the rows of each split and the facts about them.

    sizes: least and greatest allowed row count by split. facts: one mapping per split with `split`,
    `overlap` (rows whose question is in a split that it must not share with) and, of problems, `gold_parse_share`.
    referenced: whether every row must have an answer.
    Returns a list of {expectation, column, allowed, observed, success} by split, and under "data set" for the facts.
    """
    import great_expectations.expectations as gxe

    judge = _judge()

    def lengths(column: str, longest: int) -> Any:
        return gxe.ExpectColumnValueLengthsToBeBetween(column=column, min_value=1, max_value=longest)

    verdict = {}
    for split, rows in splits.items():
        least, greatest = sizes[split]
        columns = ["id", "question", "answer"]
        frame = pd.DataFrame([{column: row[column] for column in columns} for row in rows], columns=columns)
        answered = frame["answer"].notna().any()
        words = []
        if isinstance(limits, TextQuality):
            frame["question_tokens"] = [len(question.split()) for question in frame["question"]]
            least_words = limits.min_question_words
            words = [gxe.ExpectColumnMinToBeBetween(column="question_tokens", min_value=least_words)]
        verdict[split] = judge(split, frame, [
            gxe.ExpectTableRowCountToBeBetween(min_value=least, max_value=greatest),
            *(gxe.ExpectColumnValuesToNotBeNull(column=column) for column in columns if column != "answer" or referenced),
            gxe.ExpectColumnValuesToBeUnique(column="id"),
            lengths("question", limits.max_question_chars),
            *([lengths("answer", limits.max_answer_chars)] if answered or referenced else []),
            *words,
        ])  # fmt: skip
    gold = []
    if isinstance(limits, Quality) and referenced:
        gold = [gxe.ExpectColumnMinToBeBetween(column="gold_parse_share", min_value=limits.min_gold_parse_share)]
    verdict["data set"] = judge("data set", pd.DataFrame(list(facts)), [
        *gold,
        gxe.ExpectColumnMaxToBeBetween(column="overlap", max_value=0),
    ])  # fmt: skip
    return verdict


def validate_pairs(pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Judge the rows of pairs.parquet: each has an id of its own, a known split, a prompt that ends with the user, and two
    responses that say something and differ; no prompt stands in both splits. Returns a list as `validate` has by split."""
    import great_expectations.expectations as gxe

    prompts = [canonical_json(pair["prompt"]) for pair in pairs]
    trained = {prompt for pair, prompt in zip(pairs, prompts, strict=True) if pair["split"] == "train"}
    frame = pd.DataFrame([
        {
            "id": pair["id"], "split": pair["split"],
            **{f"{side}_words": len((pair[side] or "").split()) for side in ("chosen", "rejected")},
            "prompt_words": min((len((message["content"] or "").split()) for message in pair["prompt"]), default=0),
            "equal": int(pair["chosen"] == pair["rejected"]), "wrong_roles": int(not _takes_turns(pair["prompt"])),
            "overlap": int(pair["split"] != "train" and prompt in trained),
        }
        for pair, prompt in zip(pairs, prompts, strict=True)
    ], columns=_PAIR_COLUMNS)  # fmt: skip
    return _judge()(PAIRS_PART, frame, [
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
        gxe.ExpectColumnValuesToNotBeNull(column="id"),
        gxe.ExpectColumnValuesToBeUnique(column="id"),
        gxe.ExpectColumnValuesToBeInSet(column="split", value_set=["train", "validation"]),
        *(gxe.ExpectColumnMinToBeBetween(column=f"{part}_words", min_value=1) for part in ("prompt", "chosen", "rejected")),
        *(gxe.ExpectColumnMaxToBeBetween(column=fault, max_value=0) for fault in ("equal", "wrong_roles", "overlap")),
    ])  # fmt: skip


def _takes_turns(prompt: Sequence[Mapping[str, str]]) -> bool:
    """Whether user and assistant take turns, behind a system's message or none, and the user has the last word."""
    roles = [message["role"] for message in prompt]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    return len(spoken) % 2 == 1 and all(role == ("user", "assistant")[i % 2] for i, role in enumerate(spoken))


def _judge() -> Callable[[str, pd.DataFrame, list[Any]], list[dict[str, Any]]]:
    """A function of a part's name, its rows and the expectations on them, in whose order it gives the findings."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    # That module sets itself to INFO when it is imported, to tell of temporary folders.
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("memory")

    def judge(name: str, frame: pd.DataFrame, expectations: list[Any]) -> list[dict[str, Any]]:
        batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
        suite = gx.ExpectationSuite(name=name, expectations=expectations)
        results = batch.get_batch({"dataframe": frame}).validate(suite, result_format="SUMMARY").results
        by_identity = {_identity(result.expectation_config): result for result in results}
        return [_compact(by_identity[_identity(wanted.configuration)]) for wanted in expectations]

    return judge


def enforce(name: str, verdict: Verdict, kept_in: str) -> None:
    """Raise JudgefreeError with one line per failed expectation."""
    failed = [(part, check) for part, checks in verdict.items() for check in checks if not check["success"]]
    if failed:
        lines = [f"{name}: {len(failed)} of {sum(map(len, verdict.values()))} expectations on the data fail"]
        for part, check in failed:
            what = " ".join(filter(None, (part, check["column"], check["expectation"])))
            lines.append(f"    {what}: observed {check['observed']}, allowed {check['allowed']}")
        limits = "" if all(part == PAIRS_PART for part, _ in failed) else f", or the limits in data.{name}.quality"
        raise JudgefreeError("\n".join(lines), f"see {kept_in}; mend the source{limits}")


def _identity(configuration: Any) -> tuple[str, str | None]:
    return configuration.type, configuration.kwargs.get("column")


def _compact(result: Any) -> dict[str, Any]:
    """observed: the value, or the number of rows that fail; None where the expectation could not be evaluated."""
    configuration = result.expectation_config
    observed = result.result.get("observed_value", result.result.get("unexpected_count"))
    if isinstance(observed, np.generic):
        observed = observed.item()
    if isinstance(observed, float) and not math.isfinite(observed):  # the least value of no rows
        observed = None
    return {
        "expectation": configuration.type.removeprefix("expect_"),
        "column": configuration.kwargs.get("column"),
        "allowed": {
            key: limit
            for key in ("min_value", "max_value", "value_set")
            if (limit := configuration.kwargs.get(key)) is not None
        },
        "observed": observed,
        "success": bool(result.success),
    }
