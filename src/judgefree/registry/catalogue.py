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
    Metric(
        "reward_model/squared_error", "squared share", 0, 1, "of sigmoid(R - V) against true quality; where gold exists"
    ),
    _share("reward_model/cut", "conversations that were cut to be scored (SAVE)"),
    Metric("reward_model/alarms", "alarms", 0, None, "limits that the reward model is beyond (SAVE)"),
    Metric("reward_model/bad_updates", "updates", 0, None, "reward model's steps skipped as not finite, so far (SAVE)"),
    Metric("memory/size", "items", 0, None, "reviews in memory after the rollout (SRRL)"),
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
    _share("collapse/peak", "best validation pass@1 over the checkpoints (RLIF paper, Table 3)"),
    Metric("collapse/peak_step", "step", 0, None, "first checkpoint that reaches the peak"),
    Metric(
        "collapse/collapse_step", "step", 0, None, "first checkpoint after the peak below half of it; absent if none"
    ),
    _share("collapse/retention", "last checkpoint's validation pass@1 as a share of the peak"),
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
    _tokens("validation/mean_length", "mean length of the greedy answers to the validation rows"),
    Metric("step_time", "seconds", 0, None, "wall-clock time since the step before; where the run was trained here"),
    Metric(NONFINITE, "count", 0, None, "values left out so far because they were infinite or no number"),
    # Evaluation, one value per model and suite, at the step whose weights the run handed on.
    Metric("eval/*/items", "items", 1, None, "test items of the suite"),
    _share("eval/*/pass_at_1", "test items answered right, greedy"),
    _share("eval/*/unparsed", "greedy completions without a readable final answer"),
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
