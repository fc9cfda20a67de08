"""The page as a browser reads it: nothing that a model wrote is markup, and the filters have what they compare."""

import base64
import hashlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.transcripts import page as page_module
from judgefree.transcripts.page import page
from judgefree.transcripts.records import group
from judgefree.transcripts.text import number, shorten, visible

Make = Callable[..., list[dict[str, Any]]]
FOLDER = Path(page_module.__file__).parent
VOID = {"meta", "br", "link", "input", "img", "hr"}
ATTACKS = [
    "</div></article><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "' onfocus='alert(1)' autofocus='",
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "</style><style>*{display:none}</style>",
    "<!-- <![CDATA[ -->",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "&lt;b&gt; &amp;#60;",
    "<svg/onload=alert(1)>",
    "javascript:alert(1)",
    "<a href='https://example.org'>x</a>",
    "]]><details open ontoggle=alert(1)>",
]


class Reader(HTMLParser):
    """Tags with their attributes, and what every element says, as (tag, class, text) in the order of their ends."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str, str]] = []
        self.open: list[tuple[str, str, list[str]]] = []
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("class") or "", []))

    def handle_endtag(self, tag: str) -> None:
        opened, name, parts = self.open.pop()
        assert opened == tag, f"<{opened}> is closed by </{tag}>"
        self.texts.append((tag, name, "".join(parts)))
        if self.open:
            self.open[-1][2].extend(parts)

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1][2].append(data)

    def of(self, name: str) -> list[str]:
        """What the elements of this tag or class say."""
        return [text for tag, kind, text in self.texts if name in (tag, kind)]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def render(rows: list[dict[str, Any]], **more: Any) -> tuple[str, Reader]:
    groups = group(rows)
    html = page(more.pop("title", "Run"), more.pop("facts", {}), groups, groups, more.pop("questions", {}), **more)
    return html, Reader(html)


def assert_inert(html: str, read: Reader) -> None:
    """One script and one style, ours; no attribute that fetches or runs anything; a policy that allows those two alone."""
    assert read.of("script") == [(FOLDER / "page.js").read_text()]
    assert read.of("style") == [(FOLDER / "page.css").read_text()]
    harmful = {"src", "href", "action", "formaction", "srcdoc", "style", "data", "poster", "xlink:href", "autofocus"}
    for tag, attributes in read.tags:
        assert tag not in {"img", "a", "link", "iframe", "object", "base", "embed", "b1", "image"}, tag
        assert not harmful & set(attributes) and not any(name.startswith("on") for name in attributes), attributes
    policy = next(one["content"] for one in read.attributes("meta") if "http-equiv" in one)
    assert policy and policy.startswith("default-src 'none'")
    for tag in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(read.of(tag)[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "http:" not in html.replace("http-equiv", "") and "@import" not in html and "url(" not in html


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_in_a_game(game: Make, attack: str) -> None:
    rows = game([attack, "b", "c"], [0, "invalid", attack], 1, source=attack * 30, span=(3, 40), game=attack, said=attack,
                stage=attack)  # fmt: skip
    html, read = render(rows, title=attack, facts={attack: attack})
    assert_inert(html, read)
    source, output, whole = read.of("text")[:3]
    assert (source, output) == (attack * 30, attack) and whole.endswith(f"Answer: {attack}")
    assert read.of("mark")[1] == (attack * 30)[3:40]
    assert read.of("text")[-1] == attack and read.of("h1") == [attack]
    assert any(attack in text for text in read.of("h2"))


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_in_attempts(attack: str) -> None:
    rows = [
        {"step": 0, "prompt_id": attack, "slot": 0, "role": role, "text": attack, "answer": attack, "gold": attack,
         "verdict": attack, "reward": 0.5, "advantage": [0.5, 1.0], "finish_reason": attack, "tokens": 3,
         "memory": f"{attack}\n", "note": attack, "list": [attack]}
        for role in ("attempt", attack)
    ]  # fmt: skip
    html, read = render(rows, questions={attack: attack})
    assert_inert(html, read)
    assert read.of("text") == [attack, attack, f"{attack}\n", attack, f"{attack}\n"] or len(attack) > 40
    parts = [attributes["data-role"] for tag, attributes in read.tags if tag == "section"]
    assert parts == ["attempt", attack], "a role is an attribute's whole value, whatever it holds"
    assert [one["value"] for one in read.attributes("option")][-2:] == ["attempt", attack]


def test_what_is_not_seen_is_named() -> None:
    assert visible("a\u202eb\u202c") == "a<i>U+202E</i>b<i>U+202C</i>"
    assert visible("\x00\x00\x00\r\n\t<") == "<i>U+0000 ×3</i><i>U+000D</i>\n\t&lt;"
    assert visible("\U000e0041\u200b\ufeff\ud800") == "<i>U+E0041</i><i>U+200B</i><i>U+FEFF</i><i>U+D800</i>"
    assert visible("né à côté: 한국어 👩‍🚀") == "né à côté: 한국어 👩‍🚀", "letters, accents and joined emoji stay"


@pytest.mark.parametrize(
    "unseen",
    [
        "034F", "115F", "1160", "17B4", "17B5", "180B", "180F", "200C", "200D", "2065", "2800", "3164", "FE00", "FE0D",
        "FE0E", "FE0F", "FFA0", "FFF0", "1BCA0", "1D173", "1D17A", "E0000", "E0080", "E0100", "E01EF", "E0FFF",
    ],
)  # fmt: skip
def test_nothing_stays_unseen(unseen: str) -> None:
    character = chr(int(unseen, 16))
    assert visible(f"a{character}b") == f"a<i>U+{unseen}</i>b"
    assert visible(f"{character}{character}\n") == f"<i>U+{unseen} ×2</i>\n"


@pytest.mark.parametrize("seen", ["👩🏽‍🚀", "❤️", "❤︎", "🏳️‍🌈", "🏃🏽‍♂️", "1️⃣#️⃣", "👨‍👩‍👧‍👦", "\u2801"])
def test_what_makes_an_emoji_stays(seen: str) -> None:
    assert visible(f"a {seen} b") == f"a {seen} b"


def test_what_hides_beside_an_emoji_is_named() -> None:
    assert visible("🚀\u200d") == "🚀<i>U+200D</i>"
    assert visible("🚀\u200d\u200d🚀") == "🚀<i>U+200D ×2</i>🚀"
    assert visible("❤\ufe0f\ufe0f\ufe01") == "❤\ufe0f<i>U+FE0F</i><i>U+FE01</i>"
    assert visible("1\ufe0f2") == "1<i>U+FE0F</i>2"


def test_long_lines_lose_their_middle_and_say_so(game: Make) -> None:
    text = "x" * 99_990 + "last words"
    assert shorten(text, 100) == "x" * 50 + '<b class="cut">[99,900 characters left out]</b>' + "x" * 40 + "last words"
    html, read = render(game([text, "b", "c"], [0, 0, 0], 1))
    assert_inert(html, read)
    assert "[80,000 characters left out]" in read.of("cut") and len(html) < 80_000
    assert "white-space: pre-wrap" in read.of("style")[0] and "overflow-wrap: anywhere" in read.of("style")[0]


def test_numbers() -> None:
    assert [number(value) for value in (0.1, -0.12345, 0.0, -0.0, 2, None, float("nan"), [1.0, 2.0], [])] == [
        "0.1", "−0.123", "0", "0", "2", "–", "–", "1.5 (mean over tokens)", "–",
    ]  # fmt: skip
    assert [number(value, signed=True) for value in (0.5, -0.5, 0.0)] == ["+0.5", "−0.5", "0"]


def test_filters_have_what_they_compare(game: Make) -> None:
    rows = [
        *game(["a", "b", "c"], [1, 1, 0], 1, step=2, game="caught"),
        *game(["a", "b", "c"], [0, 0, 1], 1, step=2, game="missed"),
        *game(["a", "b", "c"], ["na", "missing", "invalid"], 1, step=9, game="nobody"),
    ]
    _, read = render(rows)
    articles = [(one["data-step"], one["data-outcome"]) for one in read.attributes("article")]
    assert articles == [("2", "caught"), ("2", "missed"), ("9", "no-votes")]
    assert [one["value"] for one in read.attributes("option")] == [
        "", "2", "9", "", "caught", "missed", "no-votes", "", "performer", "detector",
    ]  # fmt: skip
    parts = [one["data-role"] for _, one in read.tags if "data-role" in one]
    assert parts == ["detector", "performer", "detector"] * 3, "the table of votes goes with the detectors"
    assert [one["name"] for one in read.attributes("select")] == ["step", "outcome", "role"]


def test_who_voted_for_whom(game: Make) -> None:
    _, read = render(game(["a", "b", "c"], [2, "out_of_range", 2], 2))
    cells = [text for tag, _, text in read.texts if tag in ("td", "th")]
    assert [cells[start : start + 5] for start in range(0, len(cells), 5)] == [
        ["detector", "A", "B", "C", "no vote"],
        ["A", "", "", "●", ""],
        ["B", "", "", "", "out of range"],
        ["C", "", "", "●", ""],
        ["votes", "0", "0", "2", ""],
    ]
    assert "2 votes (from A, C)" in read.of("span") and read.of("right") == ["names C, the spy"] * 2


def test_the_header_counts_all_and_says_what_is_left_out(game: Make) -> None:
    rows = [one for step in range(4) for one in game(["a", "b", "c"], [0, 0, 1], step % 2, step=step, game=f"g{step}")]
    short = group(rows)
    chosen = {key: short[key] for key in list(short)[:1]}
    read = Reader(page("Run", {"method": "spyrl"}, short, chosen, {}))
    text = " ".join(read.of("p")[0].split())
    assert text.startswith("1 of 4 games are on this page") and "3 are left out" in text
    assert [" ".join(item.split()) for item in read.of("li")] == ["spy caught 2 (50%)", "spy not caught 2 (50%)"]
    assert len(read.attributes("article")) == 1 and read.attributes("polyline")[0]["points"]


@given(st.text(max_size=80))
def test_a_browser_reads_back_what_was_written(text: str) -> None:
    read = Reader(f"<div class='text'>{visible(text)}</div>")
    assert {tag for tag, _ in read.tags} <= {"div", "i"}
    named = read.of("i")
    if not named:
        assert read.of("text") == [text]
    assert len(named) <= len(text)
