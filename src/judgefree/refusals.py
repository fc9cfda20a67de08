"""Why settings are refused, in words for the one who wrote them."""

import difflib
import re
from collections.abc import Collection, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

# Where a reader finds a section written out; all others stand in _EXAMPLE.
EXAMPLES = {
    "judges": "profiles/spyrl-qwen3-4b-writing.yaml", "pairs": "profiles/spyrl-qwen3-4b-writing.yaml",
    "alpaca_eval": "docs/alpaca-eval.md", "arena_hard": "docs/alpaca-eval.md",
}  # fmt: skip
_EXAMPLE = "profiles/all.yaml"
_KEY = "[key]"  # how pydantic names the key of a mapping itself


def refusals(error: ValidationError, model: type[BaseModel], prefix: str, apart: Collection[str] = ()) -> list[str]:
    """One line for each setting of `model` that is refused: the key's path below `prefix`, what is wrong, the fix.

    apart: names of runs whose settings stand in the section save_runs.
    """
    lines = []
    for item in error.errors():
        loc = [str(part) for part in item["loc"]]
        levels = _levels(model, loc[:-1])
        if loc[:1] in (["bases"], ["data"], ["judges"]):
            loc[2:3] = [
                part for part in loc[2:3] if part == _KEY
            ]  # not the discriminator's value, which pydantic inserts
        if loc[:1] == ["runs"] and loc[1:2] and loc[1] in apart:
            loc[0] = "save_runs"
        if of_key := loc[-1:] == [_KEY]:
            del loc[-1]
        path = ".".join(part for part in (prefix, *loc) if part)
        if item["type"] == "extra_forbidden":
            lines.append(f"{path}: unknown key; {_meant(loc, levels)}")
        elif of_key and item["type"] == "string_type":
            lines.append(f"{path}: a name is text; write it with quotes")
        elif of_key and item["type"] == "literal_error":  # of a mapping that has some keys only
            known = re.findall(r"'([^']+)'", item.get("ctx", {}).get("expected", ""))
            close = difflib.get_close_matches(loc[-1], known, n=1)
            lines.append(
                f"{path}: unknown key; " + (f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}")
            )
        elif item["type"] == "missing":
            example = EXAMPLES.get(path.split(".")[0], _EXAMPLE)
            lines.append(f"{path}: missing; add it ({example} has such a section)")
        else:
            message = item["msg"].removeprefix("Value error, ")
            if item["type"].endswith("_type") and isinstance(item["input"], str):
                message += f", and {item['input']!r} is text"
                message += "; write it without quotes" if _was_quoted(item["input"]) else ""
            lines.append(f"{path}: {message}" if path else message)
    return lines


def _meant(loc: Sequence[str], levels: Sequence[Collection[str]]) -> str:
    """What to do about an unknown key: the likeliest place that has such a key, from its own outwards."""
    for up, fields in enumerate(reversed(levels)):
        if close := difflib.get_close_matches(loc[-1], fields, n=1):
            if up == 0:
                return f"did you mean {close[0]!r}?"
            beside = loc[-1 - up]
            return f"did you mean {close[0]!r} beside {beside!r}, {'one level' if up == 1 else f'{up} levels'} up?"
    return "remove it"


def _was_quoted(text: str) -> bool:
    """Whether YAML would have read it as something else than text without quotes."""
    try:
        return not isinstance(YAML(typ="safe", pure=True).load(text), str)
    except YAMLError:
        return False


def _levels(model: type[BaseModel], loc: Sequence[str]) -> list[set[str]]:
    """The fields that `model` has at each step of a path into it, as pydantic names the path."""
    kinds: list[Any] = [model]
    levels = [_fields(kinds)]
    for part in loc:
        if tagged := [kind for kind in kinds if part in _tags(kind)]:  # the discriminator's value is no step
            kinds = tagged
            levels.pop()
        else:
            kinds = [inner for kind in kinds for inner in _below(kind, part)]
        levels.append(_fields(kinds))
    return levels


def _fields(kinds: Sequence[Any]) -> set[str]:
    return {name for kind in kinds if _is_model(kind) for name in kind.model_fields}


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _tags(kind: Any) -> tuple[str, ...]:
    """The values of the key `kind` that choose a model among several."""
    field = kind.model_fields.get("kind") if _is_model(kind) else None
    return get_args(field.annotation) if field else ()


def _below(kind: Any, part: str) -> list[Any]:
    """What may stand under the key `part` of a value of this kind."""
    if _is_model(kind):
        return _members(kind.model_fields[part].annotation) if part in kind.model_fields else []
    return _members(get_args(kind)[-1]) if get_origin(kind) in (dict, list) else []


def _members(kind: Any) -> list[Any]:
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [inner for arg in get_args(kind) for inner in _members(arg)]
    return [kind]
