"""Exact normal form of a small, closed kind of formula: polynomials over the rationals in letters, pi and square roots.

An element is a sum of terms `c * sqrt(r) * x^a * y^b ...`: c a rational, r a square-free integer (r = -1 is the
imaginary unit, so `i` is nothing special), exponents integers. Square roots of different square-free integers are
linearly independent over Q and pi is transcendental, so for formulas without letters two values are equal exactly when
their normal forms are. Everything is bounded (digits, terms, exponents, depth): what does not fit is refused with
`Inexact`, nothing is ever approximated and nothing can run long.

Ambiguous spellings are refused too: `1/2x`, `f(2)`, `\\sqrt 53`, `2\\frac{3}{2}`, a run of three letters (a word).
"""

import re
from fractions import Fraction
from math import gcd

Term = tuple[int, tuple[tuple[str, int], ...]]  # square-free radicand; letters with their exponents, sorted
Element = dict[Term, Fraction]

_MAX_BITS = 2048
_MAX_TERMS = 48
_MAX_EXPONENT = 24
_MAX_DEPTH = 24
_MAX_RADICAND = 10**8
_ONE: Term = (1, ())

_TOKEN = re.compile(
    r"\s*((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3}(?![0-9]))?|\\[A-Za-z]+|[A-Za-z]+|[-+*/^(){}\[\]])"
)
_NOT_FACTORS = frozenset({"+", "-", "*", "/", "^", ")", "}", "]", ""})


class Inexact(Exception):
    """The formula is outside the exact kind, ambiguous, or too large for it."""


def normal_form(formula: str) -> str:
    """One spelling per value, e.g. `7`, `-1/2`, `3*sqrt(13)`, `-2+7*sqrt(-1)`, `1+2*k`.

    Raises Inexact for all that is not of the exact kind.
    """
    parser = _Parser(_tokens(formula))
    value = parser.sum()
    if parser.peek:
        raise Inexact(f"unexpected {parser.peek!r}")
    return _spell(value)


def _tokens(formula: str) -> list[str]:
    tokens: list[str] = []
    position, end = 0, len(formula.rstrip())
    while position < end:
        match = _TOKEN.match(formula, position)
        if not match:
            raise Inexact(f"unknown sign {formula[position]!r}")
        tokens += _letters(match[1]) if match[1].isalpha() else [match[1]]
        position = match.end()
    return tokens


def _letters(run: str) -> list[str]:
    if run in ("pi", "sqrt"):
        return ["\\" + run]
    if len(run) > 2:
        raise Inexact("a word")
    return list(run)


def _checked(value: Element) -> Element:
    value = {term: c for term, c in value.items() if c}
    if len(value) > _MAX_TERMS:
        raise Inexact("too many terms")
    for (_, letters), c in value.items():
        if max(c.numerator.bit_length(), c.denominator.bit_length()) > _MAX_BITS:
            raise Inexact("too many digits")
        if any(abs(power) > _MAX_EXPONENT for _, power in letters):
            raise Inexact("exponent too large")
    return value


def _add(a: Element, b: Element, sign: int = 1) -> Element:
    total = dict(a)
    for term, c in b.items():
        total[term] = total.get(term, Fraction(0)) + sign * c
    return _checked(total)


def _multiply(a: Element, b: Element) -> Element:
    total: Element = {}
    for (r, x), c in a.items():
        for (s, y), d in b.items():
            common = gcd(r, s)
            # sqrt(r) sqrt(s) = g sqrt(rs / g^2), but i * i = -1
            factor = -common if r < 0 and s < 0 else common
            radicand = r * s // common**2
            powers = dict(x)
            for letter, power in y:
                powers[letter] = powers.get(letter, 0) + power
            term = (radicand, tuple(sorted((letter, p) for letter, p in powers.items() if p)))
            total[term] = total.get(term, Fraction(0)) + c * d * factor
    return _checked(total)


def _inverse(a: Element) -> Element:
    if len(a) != 1:
        raise Inexact("division by zero or by a sum")
    ((radicand, letters), c) = next(iter(a.items()))
    return {(radicand, tuple((letter, -power) for letter, power in letters)): 1 / (c * radicand)}


def _rational(a: Element) -> Fraction:
    if not a:
        return Fraction(0)
    if set(a) != {_ONE}:
        raise Inexact("not a rational number")
    return a[_ONE]


def _power(base: Element, exponent: Fraction) -> Element:
    if exponent.denominator == 2 and abs(exponent.numerator) == 1:
        root = _root(base, 2)
        return root if exponent > 0 else _inverse(root)
    if exponent.denominator != 1:
        raise Inexact("a root of another order")
    n = abs(exponent.numerator)
    if set(base) <= {_ONE}:  # a rational: large powers such as 10^{-12} are fine as long as they are short
        value = _rational(base)
        if n * max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS or not (value or n):
            raise Inexact("power too large, or 0^0")
        result = _constant(value**n)
    else:
        if n > _MAX_EXPONENT:
            raise Inexact("exponent too large")
        result = {_ONE: Fraction(1)}
        for _ in range(n):
            result = _multiply(result, base)
    return _inverse(result) if exponent < 0 else result


def _root(a: Element, order: int) -> Element:
    value = _rational(a)
    if order == 2:
        product = value.numerator * value.denominator  # sqrt(p/q) = sqrt(pq) / q
        outside, inside = _square_part(product)
        return _checked({(inside, ()): Fraction(outside, value.denominator)}) if product else {}
    if order == 3:
        return _checked({_ONE: Fraction(_cube_root(value.numerator), _cube_root(value.denominator))})
    raise Inexact("a root of another order")


def _square_part(n: int) -> tuple[int, int]:
    """(s, r) with n = s^2 r and r square-free, of n's sign."""
    if abs(n) > _MAX_RADICAND:
        raise Inexact("radicand too large")
    outside, inside, divisor = 1, n, 2
    while divisor * divisor <= abs(inside):
        while inside % divisor**2 == 0:
            inside //= divisor**2
            outside *= divisor
        divisor += 1
    return outside, inside


def _cube_root(n: int) -> int:
    if abs(n) > 10**15:
        raise Inexact("radicand too large")
    root = round(abs(n) ** (1 / 3))
    if root**3 != abs(n):
        raise Inexact("not a perfect cube")
    return root if n >= 0 else -root


def _spell(value: Element) -> str:
    def one(term: Term, c: Fraction) -> str:
        radicand, letters = term
        factors = [] if radicand == 1 else [f"sqrt({radicand})"]
        factors += [letter if power == 1 else f"{letter}^{power}" for letter, power in letters]
        if not factors or c not in (1, -1):
            factors.insert(0, str(abs(c)))
        return ("-" if c < 0 else "+") + "*".join(factors)

    return "".join(one(term, c) for term, c in sorted(value.items())).removeprefix("+") or "0"


class _Parser:
    """Recursive descent: sum = [+-] product {+- product}; product = power {[*/] power}; power = atom [^ argument]."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = [*tokens, ""]
        self.at = 0
        self.depth = 0

    @property
    def peek(self) -> str:
        return self.tokens[self.at]

    def take(self, expected: str | None = None) -> str:
        token = self.peek
        if not token or (expected is not None and token != expected):
            raise Inexact(f"expected {expected!r}, found {token!r}")
        self.at += 1
        return token

    def sum(self) -> Element:
        sign = -1 if self.peek in ("+", "-") and self.take() == "-" else 1
        value = _add({}, self.product(), sign)
        while self.peek in ("+", "-"):
            sign = -1 if self.take() == "-" else 1
            value = _add(value, self.product(), sign)
        return value

    def product(self) -> Element:
        value = self.power()
        divided = False
        while True:
            if self.peek == "*":
                self.take()
                value, divided = _multiply(value, self.power()), False
            elif self.peek == "/":
                self.take()
                value, divided = _multiply(value, _inverse(self.power())), True
            elif self.peek in _NOT_FACTORS:
                return value
            else:
                if divided or self.peek[0] in "0123456789.[":
                    raise Inexact("ambiguous product")
                value = _multiply(value, self.power())

    def power(self) -> Element:
        base = self.atom()
        if self.peek != "^":
            return base
        self.take()
        sign = -1 if self.peek == "-" and self.take() else 1
        exponent = sign * _rational(self.argument())
        if self.peek == "^":
            raise Inexact("a tower")
        return _power(base, exponent)

    def atom(self) -> Element:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Inexact("nested too deeply")
        value = self.atom_of(self.take())
        self.depth -= 1
        return value

    def atom_of(self, token: str) -> Element:
        if token[0] in "0123456789.":
            return self.mixed(_number(token))
        if token == "(" or token == "{":
            value = self.sum()
            self.take(")" if token == "(" else "}")
            return value
        if token == "\\frac":
            return _multiply(self.argument(digit=True), _inverse(self.argument(digit=True)))
        if token == "\\sqrt":
            order = 2
            if self.peek == "[":
                self.take()
                order = 3 if self.take() == "3" else 0
                self.take("]")
            return _root(self.argument(digit=True), order)
        if token == "\\pi":
            return {(1, (("pi", 1),)): Fraction(1)}
        if token == "i":
            return {(-1, ()): Fraction(1)}
        if len(token) == 1 and token.isalpha():
            if token in "fgh" and self.peek == "(":
                raise Inexact("a function's value")
            return {(1, ((token, 1),)): Fraction(1)}
        raise Inexact(f"unknown {token!r}")

    def mixed(self, whole: Fraction) -> Element:
        """A number, or a mixed number: digits directly followed by a proper fraction of digits."""
        if self.peek != "\\frac":
            return _constant(whole)
        part = self.atom()
        if set(part) != {_ONE}:
            return _multiply({_ONE: whole}, part)
        if whole.denominator != 1 or not 0 < part[_ONE] < 1:
            raise Inexact("product or mixed number?")
        return {_ONE: whole + part[_ONE]}

    def argument(self, digit: bool = False) -> Element:
        """A braced group or one token. With `digit`, TeX's rule: of bare digits only the first belongs to it."""
        token = self.peek
        if digit and token.isascii() and token[:1].isdigit():
            if self.tokens[self.at - 1] == "\\frac" and re.fullmatch(r"[0-9]{2}", token):
                self.tokens[self.at : self.at + 1] = list(token)  # \frac12
            elif len(token) > 1:
                raise Inexact("how many digits?")
            return _constant(_number(self.take()))
        return self.atom()


def _number(token: str) -> Fraction:
    return Fraction(token + "0" if token.endswith(".") else token)


def _constant(number: Fraction) -> Element:
    return {_ONE: number} if number else {}
