"""Short expressions, the rules of their order, and the steps that working them out by some of the rules takes.

An expression is a list of numbers and signs. Without any rule it is worked out from left to right, brackets unseen; that
is habit. Each rule puts something first. A family is a set of shapes that need the same rules to come out right.
"""

import random
from collections.abc import Sequence, Set
from dataclasses import dataclass

from judgefree.data.generated import MARKER, NEAR_MISS

DRAWS = 100_000
SIGNS = ("+", "-", "*", "/")
FIRST = {"multiply": "*", "divide": "/"}  # what a rule puts before the other signs
ALL_RULES = frozenset({"brackets", *FIRST})

Expression = list[int | str]


@dataclass(frozen=True)
class Family:
    """`rules` are the ones that the shapes need, in the order of use; n stands for any number."""

    rules: tuple[str, ...]
    shapes: tuple[str, ...]

    @property
    def guideline(self) -> str:
        """What the rules are in words: "multiply first", "brackets then multiply first"."""
        return f"{' then '.join(self.rules)} first" if self.rules else "left to right"


FAMILIES = {
    "plain": Family(
        (), ("n + n - n", "n - n + n", "n * n + n", "n * n - n", "n / n + n", "n / n - n", "n + n - n + n",
             "n * n - n + n", "( n + n ) * n", "( n - n ) * n", "( n + n ) / n", "( n - n ) / n")
    ),
    "times": Family(
        ("multiply",), ("n + n * n", "n - n * n", "n + n * n - n", "n - n * n + n", "n + n - n * n", "n * n + n * n")
    ),
    "over": Family(
        ("divide",), ("n + n / n", "n - n / n", "n + n / n - n", "n - n / n + n", "n + n - n / n", "n / n + n / n")
    ),
    "brackets": Family(
        ("brackets",), ("n - ( n + n )", "n - ( n - n )", "n * ( n + n )", "n * ( n - n )", "n * n - ( n + n )",
                        "n + n - ( n + n )", "n - ( n + n ) + n", "n - ( n - n + n )")
    ),
    "nested": Family(
        ("brackets", "multiply"), ("n + n * ( n - n )", "n - n * ( n - n )", "n + n * ( n + n )", "n - n * ( n + n )",
                                   "n + ( n - n ) * n", "n - ( n - n ) * n")
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    left: int
    sign: str
    right: int
    result: int


def work_out(
    expression: Sequence[int | str], rules: Set[str], max_value: int, slip: tuple[int, int] | None = None
) -> list[Step] | None:
    """The steps in the order in which `rules` put them; None where a value leaves 0..max_value or a division has a rest.

    slip: (number of the step that goes wrong, by how much); its result is carried on.
    """
    tokens = list(expression) if "brackets" in rules else [token for token in expression if token not in ("(", ")")]
    steps: list[Step] = []
    while len(tokens) > 1:
        place = _next(tokens, rules)
        left, sign, right = int(tokens[place - 1]), str(tokens[place]), int(tokens[place + 1])
        result = _result(left, sign, right)
        if result is not None and slip and len(steps) == slip[0]:
            result += slip[1]
        if result is None or not 0 <= result <= max_value:
            return None
        steps.append(Step(left, sign, right, result))
        tokens[place - 1 : place + 2] = [result]
        if tokens[place - 2 : place + 1] == ["(", result, ")"]:
            tokens[place - 2 : place + 1] = [result]
    return steps


def written(steps: Sequence[Step]) -> str:
    """A line a step, then the marked answer: "3 * 4 = 12\\n2 + 12 = 14\\n#### 14"."""
    lines = [f"{step.left} {step.sign} {step.right} = {step.result}" for step in steps]
    return "\n".join([*lines, f"{MARKER} {steps[-1].result}"])


def slipped(expression: Sequence[int | str], rules: Set[str], max_value: int, rng: random.Random) -> list[Step]:
    """The steps with one of them wrong by up to NEAR_MISS, which changes the answer; the true ones where that cannot be."""
    steps = work_out(expression, rules, max_value)
    assert steps, "an expression that is drawn can be worked out"
    misses = [miss for miss in range(-NEAR_MISS, NEAR_MISS + 1) if miss]
    ways = (work_out(expression, rules, max_value, (i, miss)) for i in range(len(steps)) for miss in misses)
    wrong = [way for way in ways if way and way[-1].result != steps[-1].result]
    return rng.choice(wrong) if wrong else steps


def draw(family: Family, max_value: int, rng: random.Random) -> Expression:
    """An expression of the family whose steps stay in range, both by the right order and by habit, and whose answers by
    the two differ if the family has a rule. Numbers are at least 1; what multiplies or divides is 2 to max_value / 2."""
    for _ in range(DRAWS):
        expression = _filled(rng.choice(family.shapes), max_value, rng)
        right, habit = (work_out(expression, rules, max_value) for rules in (ALL_RULES, frozenset[str]()))
        if right and habit and (right[-1].result != habit[-1].result) == bool(family.rules):
            return expression
    raise AssertionError(f"no expression of {family} with numbers up to {max_value}")


def _filled(shape: str, max_value: int, rng: random.Random) -> Expression:
    tokens: Expression = []
    for word in shape.split():
        if word != "n":
            tokens.append(word)
        elif tokens and tokens[-1] in FIRST.values():
            tokens.append(rng.randint(2, max_value // 2))
        else:
            tokens.append(rng.randint(1, max_value))
    return tokens


def _next(tokens: Sequence[int | str], rules: Set[str]) -> int:
    """Place of the sign whose turn it is: inside the last opened bracket, first what a rule puts first."""
    start, end = 0, len(tokens)
    if "(" in tokens:
        start = max(i for i, token in enumerate(tokens) if token == "(")
        end = tokens.index(")", start)
    signs = [i for i in range(start, end) if tokens[i] in SIGNS]
    early = [i for i in signs if tokens[i] in {FIRST[rule] for rule in rules if rule in FIRST}]
    return (early or signs)[0]


def _result(left: int, sign: str, right: int) -> int | None:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left // right if right and left % right == 0 else None
