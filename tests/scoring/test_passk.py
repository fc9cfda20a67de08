from fractions import Fraction
from itertools import combinations
from math import comb

import pytest

from judgefree.scoring.passk import pass_at_k


def test_is_the_share_of_k_subsets_that_hold_a_correct_sample():
    for n in range(1, 9):
        for c in range(n + 1):
            samples = [True] * c + [False] * (n - c)
            for k in range(1, n + 1):
                subsets = list(combinations(samples, k))
                expected = Fraction(sum(any(subset) for subset in subsets), len(subsets))
                assert pass_at_k(n, c, k) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(200, 1, 100), (1000, 3, 10), (10_000, 9_000, 500), (10_000, 5, 1)])
def test_large_counts_agree_with_exact_binomials(n, c, k):
    expected = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert pass_at_k(n, c, k) == pytest.approx(float(expected), rel=1e-9)


def test_by_hand():
    assert pass_at_k(4, 1, 1) == pytest.approx(0.25)
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6)  # 6 pairs, one of them all wrong
    assert pass_at_k(8, 0, 8) == 0.0
    assert pass_at_k(8, 1, 8) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1), (0, 0, 1)])
def test_impossible_counts_are_refused(n, c, k):
    with pytest.raises(ValueError, match=r"samples"):
        pass_at_k(n, c, k)
