"""What params.yaml says of suites, pairs and benchmarks, checked against its other sections as params.py reads it."""

import difflib
from collections.abc import Collection, Mapping

from judgefree.config import PromptFormat, Run, Suite
from judgefree.config_benchmarks import AlpacaEval, ArenaHard
from judgefree.config_data import ArithmeticData, Base, Data, PreferenceData, ScratchBase
from judgefree.config_judges import JudgeSettings, Pair, PolicyJudge, RewardModelJudge
from judgefree.config_rewards import HELD_OUT, RewardBenchmarks, RewardGates, reward_model_name


def known_name(path: str, name: str, among: Collection[str]) -> None:
    """Raises ValueError, with the nearest name, for one that is not there."""
    if name not in among:
        close = difflib.get_close_matches(name, among, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(among)) or 'none'}"
        raise ValueError(f"{path}: unknown name {name!r}; {hint}")


def require_pairs(key: str, dataset: str, data: Mapping[str, Data]) -> None:
    """Raises ValueError for a data set of which no preference pairs are made."""
    settings = data[dataset]
    if not isinstance(settings, PreferenceData) and not (isinstance(settings, ArithmeticData) and settings.pairs):
        raise ValueError(f"{key}: {dataset} has no preference pairs; give it a section pairs, or use a data set of kind "
                         "ultrafeedback or hh_rlhf")  # fmt: skip


def require_window(key: str, max_tokens: int, name: str, base: Base) -> None:
    """Raises ValueError where a model would be given longer rows than it takes, as far as params.yaml says how long. name:
    of the base that the model comes from."""
    if isinstance(base, ScratchBase) and max_tokens > base.max_length:
        raise ValueError(f"{key}: {max_tokens}, and bases.{name}, which the reward model comes from, takes "
                         f"{base.max_length}; lower it, or raise bases.{name}.max_length")  # fmt: skip


def check_measures(suites: Mapping[str, Suite], prompts: Mapping[str, PromptFormat]) -> None:
    """A suite asks for what its answers, values or texts, can be measured by."""
    for name, suite in suites.items():
        texts = prompts[suite.dataset].measure == "rouge"
        if texts and (suite.pass_at or suite.retry):
            raise ValueError(
                f"suites.{name}: {'pass_at' if suite.pass_at else 'retry'} is for answers that are right or wrong, and "
                f"those of {suite.dataset} are texts (prompts.{suite.dataset}.measure: rouge); remove it"
            )
        if not texts and suite.game:
            raise ValueError(
                f"suites.{name}.game: votes are compared with how good a text is by its reference; set "
                f"prompts.{suite.dataset}.measure: rouge, or remove game"
            )
        if not texts and suite.samples and not suite.pass_at:
            raise ValueError(f"suites.{name}: samples needs pass_at; add it or remove samples")


def check_pairs(
    pairs: Mapping[str, Pair], judges: Mapping[str, JudgeSettings], models: Mapping[str, Run | Base]
) -> None:
    """Pairs name what is there, and no two of them the same figure."""
    for name, judge in judges.items():
        if isinstance(judge, PolicyJudge):
            known_name(f"judges.{name}.model", judge.model, models)
    seen: dict[tuple[str, ...], str] = {}
    for name, pair in pairs.items():
        known_name(f"pairs.{name}.judge", pair.judge, judges)
        for side, model in (("model", pair.model), ("against", pair.against)):
            known_name(f"pairs.{name}.{side}", model, models)
            if pair.suite not in models[model].suites:
                raise ValueError(f"pairs.{name}.suite: {model} is not tested on {pair.suite}; add it to its suites")
        if (pair.prompts is None) != isinstance(judges[pair.judge], RewardModelJudge):
            raise ValueError(f"pairs.{name}.prompts is given exactly when the judge reads; add or remove it")
        if (other := seen.setdefault((pair.model, pair.against, pair.suite, pair.judge), name)) != name:
            raise ValueError(f"pairs.{name}: has model, against, suite and judge of pairs.{other}; remove one")


def check_answering(
    section: str,
    benchmark: AlpacaEval | ArenaHard | None,
    judges: Mapping[str, JudgeSettings],
    policies: Collection[str],
) -> None:
    """A benchmark that policies answer: its models and its judge are there, and the judge has what it reads."""
    if benchmark is None:
        return
    known_name(f"{section}.judge", benchmark.judge, judges)
    for model in benchmark.models:
        known_name(f"{section}.models", model, policies)
    if (not benchmark.prompts) != isinstance(judges[benchmark.judge], RewardModelJudge):
        raise ValueError(f"{section}.prompts is given exactly when the judge reads; add or remove it")


def check_rewarding(
    judged: RewardBenchmarks | None, gates: RewardGates | None, datasets: Mapping[str, str], data: Mapping[str, Data]
) -> None:
    """Benchmarks of reward models, and the gates by which those are registered. datasets: reward model -> what it is
    trained on."""
    if judged is None:
        if gates:
            raise ValueError("reward_gates: reward models are registered by their benchmarks; add the section "
                             "reward_benchmarks, or remove this one")  # fmt: skip
        return
    for model in judged.models:
        known_name("reward_benchmarks.models", model, datasets)
    if (place := judged.sets.get(HELD_OUT)) and place.dataset:
        key = f"reward_benchmarks.sets.{HELD_OUT}.dataset"
        known_name(key, place.dataset, data)
        require_pairs(key, place.dataset, data)
    if gates:
        _check_gates(judged, gates, datasets, data)


def _check_gates(
    judged: RewardBenchmarks, gates: RewardGates, datasets: Mapping[str, str], data: Mapping[str, Data]
) -> None:
    known_name("reward_gates.rank_by", gates.rank_by, judged.sets)
    dataset = judged.sets[gates.rank_by].dataset  # of the held-out pairs alone
    held_out = data[dataset] if dataset else None
    if isinstance(held_out, ArithmeticData) and held_out.pairs and gates.min_items > held_out.pairs.validation:
        raise ValueError(f"reward_gates.min_items: {gates.min_items}, and {HELD_OUT} are {held_out.pairs.validation} pairs, "
                         "so nothing would ever be promoted; lower it, or raise "
                         f"data.{dataset}.pairs.validation")  # fmt: skip
    if not judged.models:
        raise ValueError("reward_gates: no model is judged, so none would ever be registered; name some in "
                         "reward_benchmarks.models, or remove this section")  # fmt: skip
    for model in judged.models:
        if (name := reward_model_name(datasets[model])) in data:
            raise ValueError(f"data.{name}: is what the reward models of {datasets[model]} are registered as, and policies "
                             "would be registered as the same; rename it")  # fmt: skip
