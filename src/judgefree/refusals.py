"""Why settings are refused, in words for the one who wrote them."""

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError


def refusals(error: ValidationError, model: type[BaseModel], prefix: str) -> list[str]:
    """One line for each setting of `model` that is refused: the key's path below `prefix`, what is wrong, the fix."""
    lines = []
    for item in error.errors():
        loc = [str(part) for part in item["loc"]]
        if loc[:1] in (["bases"], ["data"], ["judges"]):
            del loc[2:3]  # the discriminator's value, which pydantic inserts
        path = ".".join(part for part in (prefix, *loc) if part)
        if item["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(item["loc"][-1]), _all_fields(model), n=1)
            lines.append(f"{path}: unknown key; " + (f"did you mean {close[0]!r}?" if close else "remove it"))
        elif item["type"] == "missing":
            lines.append(f"{path}: missing; add it (profiles/smollm2.yaml has every kind of section)")
        else:
            message = item["msg"].removeprefix("Value error, ")
            if item["type"].endswith("_type") and isinstance(item["input"], str):
                message += f", and {item['input']!r} is text; write it without quotes"
            lines.append(f"{path}: {message}" if path else message)
    return lines


def _all_fields(model: type[BaseModel]) -> set[str]:
    seen: set[type[BaseModel]] = set()

    def walk(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
            seen.add(kind)
            for field in kind.model_fields.values():
                walk(field.annotation)
        for inner in getattr(kind, "__args__", ()):
            walk(inner)

    walk(model)
    return {name for kind in seen for name in kind.model_fields}
