"""The metrics of one reward model as a Markdown table, the rulers beside it. Percent with standard errors."""

from collections.abc import Mapping

from judgefree.config_rewards import HELD_OUT
from judgefree.reward_benchmarks.rulers import rulers

_FACTS = ("items", "excluded", "coverage", "truncated", "unknown")
_HEADER = ["", "this model", "longest", "shortest", "random"]


def markdown(name: str, metrics: Mapping[str, float]) -> str:
    """A section per benchmark, then the averages."""
    parts = [f"# {name} as a reward model", "Percent ± standard error; docs/reward-benchmarks.md says by which rules."]
    benchmarks = dict.fromkeys(key.split("/")[1] for key in metrics if key.endswith("/items"))
    for benchmark in benchmarks:
        prefix = f"reward_bench/{benchmark}/"
        scores = sorted((key.removeprefix(prefix) for key in metrics if key.startswith(prefix)), key=_order)
        parts += [f"## {benchmark}", _coverage(benchmark, metrics)]
        parts.append(_grid(metrics, [(score, f"{benchmark}/{score}") for score in scores if score not in _FACTS]))
    means = [
        key.removeprefix("reward_bench/") for key in metrics if key.startswith("reward_bench/") and key.count("/") == 1
    ]
    if means:
        parts += ["## Over benchmarks", _grid(metrics, [(mean, mean) for mean in means])]
    return "\n\n".join(parts) + "\n"


def _order(score: str) -> tuple[int, str]:
    """The whole first, then its sections, then what is finer."""
    return score.count("/"), score


def _coverage(benchmark: str, metrics: Mapping[str, float]) -> str:
    """How many items, of how many published rows, and how many texts were cut."""
    prefix = f"reward_bench/{benchmark}/"
    says = [f"{metrics[prefix + 'items']:,.0f} items"]
    if excluded := metrics[prefix + "excluded"]:
        why = "pairs to train on left out" if benchmark == HELD_OUT else "rows left out by rule"
        says.append(f"{excluded:,.0f} {why}")
    if (coverage := metrics.get(prefix + "coverage")) is not None and coverage < 1:
        says.append(f"{coverage:.1%} of the published rows")
    if truncated := metrics.get(prefix + "truncated"):
        says.append(f"{truncated:.1%} of the texts cut")
    if unknown := metrics.get(prefix + "unknown"):
        says.append(f"{unknown:.1%} of the tokens unknown to the model's tokenizer")
    return "; ".join(says) + "."


def _grid(metrics: Mapping[str, float], rows: list[tuple[str, str]]) -> str:
    lines = [_HEADER, ["---", *["---:"] * (len(_HEADER) - 1)]]
    for label, key in rows:
        if not key.endswith("_se"):
            names = [f"reward_bench/{key}", *(f"ruler/{ruler}/{key}" for ruler in rulers(0))]
            lines.append([label.removeprefix("section/"), *(_cell(metrics, name) for name in names)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(metrics: Mapping[str, float], name: str) -> str:
    error = metrics.get(f"{name}_se")
    return f"{metrics[name]:.1%}".rstrip("%") + (f" ± {error:.1%}".rstrip("%") if error is not None else "")
