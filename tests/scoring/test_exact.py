import cmath
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.scoring.exact import Inexact, normal_form


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("7", "7"),
        ("-0", "0"),
        (r"\frac{2}{4}", "1/2"),
        (r"\frac12x", "1/2*x"),
        (r"\sqrt{12}", "2*sqrt(3)"),
        (r"\sqrt{\frac{3}{4}}", "1/2*sqrt(3)"),
        (r"\sqrt{2}\sqrt{6}", "2*sqrt(3)"),
        (r"\frac{6}{\sqrt{12}}", "sqrt(3)"),
        (r"\sqrt{-4}", "2*sqrt(-1)"),
        ("i^3", "-sqrt(-1)"),
        (r"\frac{1}{i}", "-sqrt(-1)"),
        (r"\sqrt{-2}\sqrt{-8}", "-4"),
        ("(x-1)(x+1)", "-1+x^2"),
        ("(x+y)^2-(x-y)^2", "4*x*y"),
        (r"\frac{x^3}{x}", "x^2"),
        (r"\frac{4\pi}{2\pi}", "2"),
        (r"3\frac{\pi}{2}", "3/2*pi"),
        (r"2\frac{1}{2}", "5/2"),
        (r"2\frac{1}{2}x", "5/2*x"),
        ("-2^2", "-4"),
        ("2^{-3}", "1/8"),
        ("8^{-1/2}", "1/4*sqrt(2)"),
        ("1.5e-3", "3/2000"),
        ("1/2*x", "1/2*x"),
    ],
)
def test_worked_out_by_hand(formula, expected):
    assert normal_form(formula) == expected


@pytest.mark.parametrize(
    "formula",
    [
        "",
        "1/2x",
        "1/0",
        r"\frac{1}{x-x}",
        "0^0",
        r"\frac{1}{1+x}",
        "f(2)",
        r"\sqrt 53",
        r"\sqrt{x}",
        r"\sqrt{2}^{1/2}",
        r"2\frac{3}{2}",
        r"0.5\frac12",
        "1 2",
        "1.2.3",
        "2^x",
        "2^3^2",
        "cat",
        "(1",
        "1)",
        "--1",
        r"\sqrt[3]{2}",
        r"\sin x",
        "5^(5^(5^(5^5)))",
        "10^{10^{10}}",
        "10^{1000}",
        "9" * 900,
        "(a+b+c+d)^{24}",
        "x^{25}",
        r"\sqrt{99999999977}",
        "(" * 500 + "1" + ")" * 500,
        r"\sqrt" * 200 + "1",
    ],
)
def test_ambiguous_large_and_foreign_formulas_are_refused(formula):
    with pytest.raises(Inexact):
        normal_form(formula)


_TREES = st.recursive(
    st.one_of(
        st.integers(0, 12).map(lambda n: (str(n), complex(n))),
        st.sampled_from([("x", 1.7 + 0j), ("y", -0.6 + 0j), ("i", 1j), (r"\pi", cmath.pi + 0j)]),
        st.sampled_from([2, 3, 6, 8, 12, 50]).map(lambda n: (rf"\sqrt{{{n}}}", cmath.sqrt(n))),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}+{p[1][0]})", p[0][1] + p[1][1])),
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}-{p[1][0]})", p[0][1] - p[1][1])),
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]})({p[1][0]})", p[0][1] * p[1][1])),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: (rf"\frac{{{p[0][0]}}}{{{p[1]}}}", p[0][1] / p[1])),
        inner.map(lambda p: (f"({p[0]})^2", p[1] ** 2)),
    ),
    max_leaves=8,
)


def _value(key: str) -> complex:
    """A plain evaluation of a normal form in floating point."""
    total = 0j
    for term in key.replace("sqrt(-", "sqrt(~").replace("^-", "^~").replace("-", "+-").split("+"):
        if not term:
            continue
        sign, product = (-1, 1 + 0j) if term.startswith("-") else (1, 1 + 0j)
        for factor in term.lstrip("-").split("*"):
            name, _, power = factor.replace("~", "-").partition("^")
            if name.startswith("sqrt("):
                number = cmath.sqrt(int(name[5:-1]))
            else:
                number = {"x": 1.7, "y": -0.6, "pi": cmath.pi}.get(name) or complex(Fraction(name))
            product *= number ** int(power or 1)
        total += sign * product
    return total


@given(_TREES)
def test_the_normal_form_has_the_formula_s_value(tree):
    formula, expected = tree
    try:
        key = normal_form(formula)
    except Inexact:
        return
    assert abs(_value(key) - expected) <= 1e-6 * max(1.0, abs(expected))
    assert normal_form(key.replace("sqrt", r"\sqrt").replace("pi", r"\pi")) == key


@given(st.lists(st.tuples(st.integers(-9, 9), st.sampled_from(["x", "y", "xy", r"\sqrt{2}", r"\pi", "1"])), min_size=1))
def test_the_order_of_terms_does_not_matter(terms):
    def spell(items):
        return "+".join(f"({c}*{factor})" for c, factor in items)

    shuffled = random.Random(0).sample(terms, len(terms))
    assert normal_form(spell(terms)) == normal_form(spell(shuffled))
