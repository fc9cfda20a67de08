"""The metric catalogue: what every metric in MLflow means, and how a name of ours becomes one that MLflow takes.

Names are TRL's where they mean the same. MLflow takes letters, digits and `/_-. :`; so `pass@4` reads `pass_at_4`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NONFINITE = "nonfinite_values"


@dataclass(frozen=True)
class Metric:
    """name: as in MLflow, `*` for any text without a slash; lowest and highest: None where it has no bound."""

    name: str
    unit: str
    lowest: float | None
    highest: float | None
    meaning: str


def _share(name: str, meaning: str) -> Metric:
    return Metric(name, "share", 0, 1, meaning)


def _tokens(name: str, meaning: str) -> Metric:
    return Metric(name, "tokens", 0, None, meaning)


def _benchmark(of: str, whose: str) -> tuple[Metric, ...]:
    """Scores of reward models; standard errors first, since a name with a star would match theirs too."""
    return (
        *(Metric(f"{of}/{path}_se", "share", 0, None, "standard error of the score; groups that share a prompt count once")
          for path in ("*", "*/*", "*/*/*", "*/*/*/*")),
        _share(f"{of}/average_of_six", f"plain mean of the six reward benchmarks' overall scores, {whose}"),
        _share(f"{of}/mean_of_*", f"the same over the benchmarks named, which are whole, {whose}"),
        _share(f"{of}/*/overall", f"the benchmark's own overall score, {whose}"),
        _share(f"{of}/*/mean_of_*", f"plain mean of the sections named, since others are not there, {whose}"),
        _share(f"{of}/*/share_of_*", f"share of right decisions in the sections named, {whose}"),
        Metric(f"{of}/*/section/*", "share", -0.01, 1.01, f"score of a section (Ties alone leaves 0 to 1), {whose}"),
        _share(f"{of}/*/section/*/*", f"score of a section at one level of difficulty (RM-Bench), {whose}"),
        _share(f"{of}/*/subset/*", f"accuracy on a subset (RewardBench), {whose}"),
        _share(f"{of}/*/level/*", f"mean of the domains at one level of difficulty (RM-Bench), {whose}"),
        _share(f"{of}/*/level/*/*", f"the same over the domains named, since others are not there, {whose}"),
    )  # fmt: skip


CATALOGUE = (
    # Training, a value per optimizer step. A rollout's values stand at the steps that it feeds.
    Metric("reward", "reward", None, None, "mean reward of a rollout's completions"),
    Metric("reward_std", "reward", 0, None, "mean over groups of the rewards' standard deviation"),
    _share("reward/missing", "completions without a reward, since the grader could not judge them"),
    _share("frac_reward_zero_std", "groups whose rewards are all equal, so that nothing is learnt from them"),
    Metric("own_signal", "signal", None, None, "what a method without labels selects its checkpoint by"),
    Metric("own_signal/rollout", "signal", None, None, "the same of one rollout; a checkpoint has their mean"),
    _share("reward/cluster", "mean share of a group's readable answers that equal a completion's own (RLIF)"),
    _share("reward/format", "completions with an answer where it belongs (RLIF)"),
    Metric("reward/certainty", "nats/token", 0, None, "mean KL divergence of the uniform distribution from the policy"),
    Metric("cluster/entropy", "nats", 0, None, "entropy of the answers within a group, mean over groups"),
    Metric("answers/entropy", "nats", 0, None, "entropy of all answers of a rollout"),
    _share("vote/accuracy", "groups whose most frequent answer is right; where gold exists, never learnt from"),
    Metric("reward/review", "reward", 0, 1, "mean reward of the reviews: that of the second attempts (SRRL)"),
    Metric("reward/second", "reward", 0, 1, "mean reward of the second attempts (SRRL)"),
    _share("reviews/gated", "attempts to be reviewed (SRRL)"),
    _share("reviews/untagged", "reviews whose guidelines stand in no closed tag (SRRL)"),
    Metric(
        "reward/true", "reward", 0, 1, "share of responses that are right; where gold exists, never learnt from (SAVE)"
    ),
    Metric("reward_model/loss_r", "nats", 0, None, "L_R of the reward model's step (SAVE)"),
    Metric("reward_model/loss_v", "reward^2", 0, None, "L_V of the value head's step (SAVE)"),
    Metric("reward_model/loss_hl", "nats", 0, None, "loss on each group's highest against its lowest reward (HL-BT)"),
    Metric("reward_model/loss_bt", "nats", 0, None, "Bradley-Terry loss on preference pairs (continual offline)"),
    Metric("reward_model/threshold", "reward", 0, None, "least distance of reward from value that was kept (SAVE)"),
    _share("reward_model/kept", "responses that the policy learns from, after the step (SAVE)"),
    _share("reward_model/both_signs", "prompts with kept responses above and below their value (SAVE)"),
    Metric("reward_model/anchor_gap", "reward", 0, None, "distance of the mean value from the mean reward (SAVE)"),
    Metric("reward_model/length_correlation", "correlation", -1, 1, "of reward and length, within groups (SAVE)"),
    Metric(
        "reward_model/prompt_correlation", "correlation", -1, 1, "of reward and words from the prompt, within groups"
    ),
    Metric("reward_model/drift", "1 - correlation", 0, 2, "distance from the first reward model, within groups (SAVE)"),
    _share("reward_model/pair_accuracy", "pairs of a right and a wrong response in the right order; where gold exists"),
    _share("reward_model/first_pair_accuracy", "the same pairs, by the first reward model"),
    Metric("reward_model/pairs", "pairs", 0, None, "of a right and a wrong response to one prompt; where gold exists"),
    Metric(
        "reward_model/squared_error", "squared share", 0, 1, "of sigmoid(R - V) against true quality; where gold exists"
    ),
    _share("reward_model/counted", "responses that were not cut off, from which the reward model may learn (SAVE)"),
    _share("reward_model/cut", "conversations that were cut to be scored (SAVE)"),
    Metric("reward_model/alarms", "alarms", 0, None, "limits that the reward model is beyond (SAVE)"),
    Metric("reward_model/bad_updates", "updates", 0, None, "reward model's steps skipped as not finite, so far (SAVE)"),
    Metric("judge/cost", "currency", 0, None, "price of the judge's answers to a rollout, all processes (rubric)"),
    _tokens("judge/tokens", "tokens that the judge read and wrote for a rollout, all processes (rubric)"),
    Metric("judge/failed", "completions", 0, None, "completions of a rollout that the judge gave no score (rubric)"),
    Metric("memory/size", "items", 0, None, "reviews in memory after the rollout (SRRL)"),
    Metric(
        "reward/spy", "reward", None, None, "mean performing reward of the spies; that of a whole game is 0 (SpyRL)"
    ),
    Metric("reward/detector", "reward", None, None, "mean reward of the detectors, learning or not (SpyRL)"),
    _share("detector/accuracy", "votes that name the spy, among all votes (SpyRL)"),
    _share("votes/na", "votes that abstain (SpyRL)"),
    _share("votes/missing", "detectors' completions without a closed box outside of thought (SpyRL)"),
    _share("votes/invalid", "votes whose box holds no number and no N/A (SpyRL)"),
    _share("votes/out_of_range", "votes for a number that is no player's (SpyRL)"),
    _share("votes/unreadable", "votes that are missing, invalid or out of range; above 0.1 something is wrong (SpyRL)"),
    Metric("votes/received_by_spy", "votes", 0, None, "mean number of votes that a game's spy receives (SpyRL)"),
    _share("detector/accuracy_spy", "votes of the spies, which see less, that name the spy, themselves (SpyRL)"),
    _share("information_loss/ratio", "hidden characters or words among all of a source, mean over games (SpyRL)"),
    _share("information_loss/far", "games whose hidden part is over half more or less than asked for (SpyRL)"),
    Metric("game/too_long", "games", 0, None, "games left out since one of their prompts is too long (SpyRL)"),
    _share("game/switched", "1 where the next rollout trains the other side (SpyRL)"),
    _share("stage/performing", "1 where the performers learn (SpyRL)"),
    _share("stage/detection", "1 where the detectors learn (SpyRL)"),
    _share("stage/accuracy_mean", "moving mean of detector/accuracy, by which the stages change (SpyRL)"),
    _share("stage/na_mean", "moving mean of votes/na, by which the stages change (SpyRL)"),
    Metric("baseline/spy", "reward", None, None, "moving mean of the spies' performing rewards (SpyRL)"),
    Metric("baseline/civilian", "reward", None, None, "moving mean of the civilians' performing rewards (SpyRL)"),
    Metric("rollout/completions", "completions", 0, None, "completions of a rollout, all roles and processes"),
    Metric("rollout/completions/*", "completions", 0, None, "the same of one role"),
    _tokens("rollout/tokens", "tokens of a rollout's completions, all roles and processes"),
    _tokens("rollout/tokens/*", "the same of one role"),
    Metric("rollout/distilled", "completions", 0, None, "second attempts that are imitated (SRRL)"),
    Metric("rollout/too_long", "prompts", 0, None, "reviews and second attempts not played: prompt too long (SRRL)"),
    Metric("cov/abs_log_ratio", "nats/token", 0, None, "mean distance of the log ratio from 0 on selected tokens"),
    _share("completions/distinct_2", "distinct pairs of tokens among all pairs of a rollout"),
    _share("completions/repetition", "four-token sequences that repeat inside their completion"),
    Metric("monitor/alarms", "alarms", 0, None, "alarms of the collapse monitor that stand"),
    _share("monitor/*", "1 where this alarm stands, or where a collapse was declared"),
    _share("collapse/peak", "best validation (pass@1, or ROUGE-L of texts) over the checkpoints (RLIF paper, Table 3)"),
    Metric("collapse/peak_step", "step", 0, None, "first checkpoint that reaches the peak"),
    Metric(
        "collapse/collapse_step", "step", 0, None, "first checkpoint after the peak below half of it; absent if none"
    ),
    _share("collapse/retention", "last checkpoint's validation as a share of the peak"),
    Metric("loss", "nats", None, None, "the loss of the optimizer step"),
    Metric("grad_norm", "norm", 0, None, "norm of the gradient before clipping"),
    Metric("learning_rate", "rate", 0, None, "learning rate of the step"),
    Metric("kl", "nats/token", None, None, "KL divergence from the reference policy (k3)"),
    _share("kl/clamped", "tokens whose log ratio to the reference policy was cut off before KL divergence was taken"),
    Metric("entropy", "nats/token", 0, None, "mean entropy of the policy's next-token distribution"),
    _share("mean_token_accuracy", "demonstration tokens that are the most probable ones (supervised)"),
    Metric("bad_steps", "steps", 0, None, "steps skipped so far because a loss, reward or gradient was not finite"),
    Metric("ratio/abs_log_mean", "nats/token", 0, None, "mean distance of the tokens' log ratio from 0"),
    _share("clip_ratio/*", "tokens whose ratio was clipped: on the low side, the high side, or either (region)"),
    Metric("sampling/*", "", None, None, "difference and importance ratio between sampler and trainer (vLLM)"),
    Metric("sampling/*/*", "", None, None, "difference and importance ratio between sampler and trainer (vLLM)"),
    _tokens("completions/mean_length", "mean length of a rollout's completions, the end token included"),
    _tokens("completions/min_length", "shortest completion of the rollout"),
    _tokens("completions/max_length", "longest completion of the rollout"),
    _tokens("completions/*_terminated_length", "the same over completions that ended by themselves"),
    _share("completions/clipped_ratio", "completions cut off at the length limit"),
    _share("completions/unparsed_ratio", "completions without a readable final answer"),
    _share("validation/pass_at_1", "validation rows answered right, greedy"),
    _share("validation/ungraded", "validation rows that the grader gave up on; they are left out of pass@1"),
    _share("validation/rouge_l", "ROUGE-L (LongBench) of the greedy texts to the validation rows with references"),
    _share("validation/empty", "greedy completions without a text where it belongs; they score 0"),
    Metric("validation/words", "words", 0, None, "mean words of those texts, between blanks"),
    _tokens("validation/mean_length", "mean length of the greedy answers to the validation rows"),
    Metric("step_time", "seconds", 0, None, "wall-clock time since the step before; where the run was trained here"),
    Metric(NONFINITE, "count", 0, None, "values left out so far because they were infinite or no number"),
    # Evaluation, one value per model and suite, at the step whose weights the run handed on.
    Metric("eval/*/items", "items", 1, None, "test items of the suite"),
    Metric(
        "eval/*/referenced",
        "items",
        1,
        None,
        "test items with a reference text, where some have none; ROUGE is of these",
    ),
    _share("eval/*/pass_at_1", "test items answered right, greedy"),
    _share("eval/*/unparsed", "greedy completions without a readable final answer"),
    *(
        entry
        for of, kind in (("", "greedy"), ("sampled/", "sampled"))
        for entry in (
            _share(
                f"eval/*/{of}rouge_l", f"ROUGE-L of the {kind} texts: rouge-l, F, of package rouge, as in LongBench"
            ),
            _share(f"eval/*/{of}rouge_score/rougeL", f"rougeL, F, of rouge-score with stemming: the {kind} texts"),
            _share(f"eval/*/{of}rouge_score/rougeLsum", "the same by sentences, which are lines"),
            Metric(f"eval/*/{of}rouge_score/*_se", "as the metric", 0, None, "standard error of the metric over items"),
            _share(f"eval/*/{of}empty", f"{kind} completions without a text where it belongs; they score 0"),
            Metric(f"eval/*/{of}words", "words", 0, None, f"mean words of the {kind} texts, between blanks"),
            Metric(f"eval/*/{of}words_ratio", "ratio", 0, None, "words of these texts over words of the references"),
        )
    ),
    _share("eval/*/truncated", "greedy completions cut off at the length limit"),
    _share("eval/*/ungraded", "greedy completions that the grader gave up on; they count as wrong"),
    _tokens("eval/*/length", "mean length of the greedy completions"),
    _tokens("eval/*/length_right", "mean length of the right ones"),
    _tokens("eval/*/length_wrong", "mean length of the wrong ones"),
    _share(
        "eval/*/first/pass_at_1", "first attempts that are right, of a suite that tries again; its pass@1 is the last's"
    ),
    Metric("eval/*/retry/rounds", "attempts", 0, None, "mean number of attempts after the first"),
    _tokens(
        "eval/*/retry/tokens", "mean number of tokens sampled for an item: all attempts and what is said about them"
    ),
    Metric("eval/*/retry/too_long", "items", 0, None, "items that kept an attempt since the next prompt had no room"),
    _share("eval/*/sampled/accuracy", "right completions among all sampled ones"),
    _share("eval/*/sampled/pass_at_*", "unbiased pass@k: an item counts when one of k samples is right"),
    _share("eval/*/sampled/unparsed", "sampled completions without a readable final answer"),
    _share("eval/*/sampled/truncated", "sampled completions cut off at the length limit"),
    _share("eval/*/sampled/ungraded", "sampled completions that the grader gave up on"),
    _tokens("eval/*/sampled/length", "mean length of the sampled completions"),
    _tokens("eval/*/sampled/length_right", "mean length of the right ones"),
    _tokens("eval/*/sampled/length_wrong", "mean length of the wrong ones"),
    # What was measured while a reward model was made, one value per reward model (docs/save.md).
    Metric("reward_training/pairs", "pairs", 1, None, "preference pairs that the reward model was trained on"),
    _share("reward_training/cut_share", "conversations of these pairs that were cut"),
    _share(
        "reward_training/pair_accuracy", "held-out pairs of its data set whose chosen response has the higher reward"
    ),
    Metric(
        "reward_training/value_error", "reward", 0, None, "root mean square error of V against a prompt's mean reward"
    ),
    Metric("reward_training/value_error_of_mean", "reward", 0, None, "the same of one value for all prompts"),
    Metric(
        "reward_training/reward_mean", "reward", None, None, "mean reward of the policy's responses that V is fitted to"
    ),
    Metric("reward_training/reward_std", "reward", 0, None, "mean over prompts of these rewards' standard deviation"),
    # Reward benchmarks (docs/reward-benchmarks.md), one value per reward model.
    Metric("reward_bench/*/items", "items", 1, None, "items that were scored"),
    Metric("reward_bench/*/excluded", "rows", 0, None, "rows that the benchmark's rule leaves out, such as ties"),
    _share("reward_bench/*/coverage", "rows that are there among those published"),
    _share("reward_bench/*/truncated", "conversations cut to the reward model's length limit"),
    _share("reward_bench/*/unknown", "tokens of the conversations that stand for text the tokenizer has no words for"),
    *_benchmark("reward_bench", "of the reward model"),
    *_benchmark("ruler/*", "of a ruler that does not read: length, length_short, random"),
    # A/B comparison, per suite and `opponent-by-judge`; of the judged rows, each in both orders.
    Metric("pairwise/*/*/items", "items", 0, None, "rows with an outcome"),
    Metric("pairwise/*/*/failed", "items", 0, None, "rows that the judge gave no verdict; they are left out"),
    _share("pairwise/*/*/win_rate", "wins and half of the ties among all rows"),
    _share("pairwise/*/*/win_rate_se", "standard error of the win rate over rows"),
    _share("pairwise/*/*/win_rate_low", "lower end of the win rate's bootstrap interval"),
    _share("pairwise/*/*/win_rate_high", "upper end of the win rate's bootstrap interval"),
    _share("pairwise/*/*/strict", "wins among all rows"),
    _share("pairwise/*/*/decided", "wins among the rows that are no tie"),
    Metric("pairwise/*/*/wins", "items", 0, None, "rows won in both orders, or in one with a tie in the other"),
    Metric("pairwise/*/*/ties", "items", 0, None, "rows that neither model won"),
    Metric("pairwise/*/*/losses", "items", 0, None, "rows lost in both orders, or in one with a tie in the other"),
    _share("pairwise/*/*/first_chosen", "verdicts for the text shown first, ties apart; 0.5 without position bias"),
    _share("pairwise/*/*/consistent", "rows whose two verdicts agree"),
    _share("pairwise/*/*/longer_chosen", "decided rows of unequal length that the longer text won"),
    Metric("pairwise/*/*/length", "characters", 0, None, "mean length of the model's texts"),
    Metric("pairwise/*/*/against_length", "characters", 0, None, "mean length of the opponent's texts"),
    _tokens("pairwise/*/*/prompt_tokens", "tokens that the judge read"),
    _tokens("pairwise/*/*/completion_tokens", "tokens that the judge wrote"),
    Metric("pairwise/*/*/cost", "currency", 0, None, "price of the judge's answers"),
    # AlpacaEval 2 and Arena-Hard v2, per judge (`by-<judge>`), who compares answers with a baseline's.
    Metric("alpaca_eval/*/items", "items", 1, None, "instructions, all of them judged"),
    _share("alpaca_eval/*/win_rate", "mean preference for the model over the baseline"),
    _share("alpaca_eval/*/length_controlled", "the same, were the answers as long as the baseline's"),
    _share("alpaca_eval/*/*_se", "standard error of the rate over instructions"),
    _share("alpaca_eval/*/extreme", "1 where length control moved the rate so far that its fit should be doubted"),
    Metric("alpaca_eval/*/length", "characters", 0, None, "mean length of the model's answers"),
    Metric("alpaca_eval/*/baseline_length", "characters", 0, None, "mean length of the baseline's answers"),
    Metric("alpaca_eval/*/weight/*", "weight", None, None, "of the length-control model: length, difficulty, constant"),
    _share("arena_hard/*/win_rate", "that of the hard prompts where they were played, else of the first category"),
    _share("arena_hard/*/*/win_rate", "mean score of a category's games, strong verdicts three times"),
    _share(
        "arena_hard/*/*/style_controlled", "the same at the baseline's length and markdown, median of the bootstraps"
    ),
    _share("arena_hard/*/*/*_low", "5th percentile of the rate's bootstraps"),
    _share("arena_hard/*/*/*_high", "95th percentile of the rate's bootstraps"),
    Metric("arena_hard/*/*/prompts", "prompts", 0, None, "prompts with two verdicts"),
    Metric("arena_hard/*/*/dropped", "prompts", 0, None, "prompts left out, since a game has no verdict"),
    *(
        metric
        for name in ("alpaca_eval/*", "arena_hard/*")
        for metric in (
            Metric(f"{name}/games", "games", 0, None, "comparisons that the judge was asked for"),
            Metric(f"{name}/no_verdict", "games", 0, None, "comparisons without a verdict"),
            _share(f"{name}/ties", "ties among the verdicts"),
            _share(f"{name}/first_chosen", "verdicts for the text shown first, ties apart; 0.5 without position bias"),
            _share(f"{name}/truncated", "answers cut off at the length limit"),
            _tokens(f"{name}/prompt_tokens", "tokens that the judge read"),
            _tokens(f"{name}/completion_tokens", "tokens that the judge wrote"),
            Metric(f"{name}/cost", "currency", 0, None, "price of the judge's answers"),
        )
    ),
    Metric("eval/*/*_se", "as the metric", 0, None, "standard error of the metric over items"),
    Metric("eval/*/first/*_se", "as the metric", 0, None, "standard error of the metric over items"),
    Metric("eval/*/sampled/*_se", "as the metric", 0, None, "standard error of the metric over items"),
)

_EXACT = {metric.name: metric for metric in CATALOGUE if "*" not in metric.name}
_PATTERNS = [(re.compile(re.escape(m.name).replace(r"\*", "[^/]+")), m) for m in CATALOGUE if "*" in m.name]


def mlflow_name(name: str) -> str:
    """A metric's or parameter's name in the characters that MLflow takes, never empty, at most 250 of them."""
    name = re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"), flags=re.ASCII)
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return "/".join(parts)[:250].rstrip("/") or "_"


def describe(name: str) -> Metric | None:
    """The catalogue's entry for a name as it stands in MLflow; None for a metric that nobody described."""
    if name in _EXACT:
        return _EXACT[name]
    return next((metric for pattern, metric in _PATTERNS if pattern.fullmatch(name)), None)


def split_finite(row: Mapping[str, float | None]) -> tuple[dict[str, float], dict[str, float]]:
    """A row's finite and its other values, by MLflow name; missing ones are in neither. MLflow would store infinity as
    1.8e308, which no chart survives."""
    present = {mlflow_name(name): float(value) for name, value in row.items() if value is not None}
    finite = {name: value for name, value in present.items() if math.isfinite(value)}
    return finite, {name: value for name, value in present.items() if name not in finite}


def markdown(names: Iterable[str]) -> str:
    """What metrics of these names (as in MLflow) mean, as a table."""
    rows = []
    for name in sorted(names):
        metric = describe(name)
        rows.append(f"| `{name}` | {metric.unit} | {_range(metric)} | {metric.meaning} |" if metric
                    else f"| `{name}` | | | not described in registry/catalogue.py |")  # fmt: skip
    return "\n".join(["| metric | unit | range | meaning |", "| --- | --- | --- | --- |", *rows, ""])


def _range(metric: Metric) -> str:
    if metric.lowest is None and metric.highest is None:
        return ""
    return f"{'' if metric.lowest is None else metric.lowest} to {'' if metric.highest is None else metric.highest}"
