"""pass@k: the chance that at least one of k samples is correct, estimated from n >= k samples."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased pass@k of one problem with `c` correct among `n` samples: 1 - C(n-c, k) / C(n, k).

    Computed as 1 - prod_{i=n-c+1..n} (1 - k/i), which does not overflow; exactly 1 where fewer than k samples are wrong
    (Chen et al. 2021, "Evaluating Large Language Models Trained on Code"). Raises ValueError unless 0 <= c <= n and
    1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c = {c} correct of n = {n} samples is impossible")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} samples and k >= 1; there are {n}")
    if n - c < k:
        return 1.0
    all_wrong = 1.0
    for i in range(n - c + 1, n + 1):
        all_wrong *= 1.0 - k / i
    return 1.0 - all_wrong
