import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from judgefree.scoring.answers import extract
from judgefree.scoring.grader import Grader, settle

TIMEOUT_S = 1.5  # of CPU time
TABLE = [
    tuple(part.strip() for part in line.split(";;"))
    for line in (Path(__file__).parent / "verdicts.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.fixture(scope="module")
def grader():
    with Grader(workers=1, timeout_s=TIMEOUT_S) as grader:
        grader.grade([(r"\cot x", r"\tan x")])  # the first row pays for the start of the processes
        yield grader


def _mirror(name: str) -> list[dict]:
    root = os.environ.get("JUDGEFREE_MIRROR")
    if not root:
        pytest.skip("JUDGEFREE_MIRROR is not set: no real data")
    return [json.loads(line) for line in (Path(root) / name).read_text(encoding="utf-8").splitlines()]


def _slowdown() -> float:
    """Seconds on the wall per second of work: 1 on an idle machine, more on a shared one."""
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.1:
        pass
    return (time.perf_counter() - wall) / 0.1


def test_the_table_of_verdicts(grader):
    assert len(TABLE) >= 200
    verdicts = grader.grade([(gold, answer) for gold, answer, _ in TABLE])
    assert [(*row, got) for row, got in zip(TABLE, verdicts, strict=True) if row[2] != got] == []


def test_no_answer_is_unparsed_and_order_and_repeats_are_kept(grader):
    rows = [("5", None), ("x=5", "5"), ("5", "5"), ("x=5", "5"), ("5", "4"), ("x=5", "4")]
    assert grader.grade(rows) == ["unparsed", "correct", "correct", "correct", "wrong", "wrong"]
    assert grader.grade([]) == []


@pytest.mark.parametrize(
    "answer",
    [
        "5^(5^(5^(5^5)))",
        "10^{10^{10}}",
        "9^{9^9}",
        "2^{99999999}",
        "99999999!",
        r"\sum_{k=1}^{100000000} \frac{1}{k^2}",
        r"\sum_{k=1}^{10^8} \frac{1}{k^2}",
        r"\int_0^1 \frac{\sin(x^3) e^{x^2}}{\ln(1+x^5)+\cos x} dx",
        r"\binom{1000000}{500000}",
    ],
)
def test_what_never_ends_is_a_timeout_within_3_s_and_the_next_row_is_graded(grader, answer):
    limit_s = 3.0 * _slowdown()
    start = time.perf_counter()
    verdicts = grader.grade([("5", answer), (r"\cot x", r"\frac{\cos x}{\sin x}"), ("1", "1")])
    assert verdicts == ["timeout", "correct", "correct"]
    assert time.perf_counter() - start < max(limit_s, 3.0 * _slowdown())


def test_degenerate_answers_are_quick(grader):
    texts = [
        "",
        "\0",
        "x" * 100_000,
        "{" * 900,
        "(" * 900,
        "\\frac" * 150,
        "1+" * 400 + "1",
        "\\" * 900,
        "^" * 900,
        "$" * 99,
    ]
    start = time.perf_counter()
    verdicts = grader.grade([("5", text) for text in texts])
    assert time.perf_counter() - start < 10
    assert "correct" not in verdicts
    assert verdicts[:3] == ["unparsed", "unparsed", "unparsed"]


def test_from_threads_the_verdicts_are_those_of_the_main_thread(grader):
    rows = [(gold, answer) for gold, answer, _ in TABLE if settle(gold, answer) is None][:25]
    expected = grader.grade(rows)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(grader.grade, [rows, rows])) == [expected, expected]


def test_processes_outlive_the_thread_that_first_needed_them():
    with Grader(workers=1, timeout_s=TIMEOUT_S) as grader:
        first: list[list[str]] = []
        thread = threading.Thread(target=lambda: first.append(grader.grade([("x=5", "5")])))
        thread.start()
        thread.join()
        assert first == [["correct"]]
        before = {child.pid for child in multiprocessing.active_children()}
        time.sleep(0.3)  # a replaced process would show by now
        assert grader.grade([("x=6", "6"), ("x=6", "7")]) == ["correct", "wrong"]
        assert {child.pid for child in multiprocessing.active_children()} == before


def test_plain_numbers_need_no_process_and_are_fast():
    with Grader(workers=1, timeout_s=TIMEOUT_S) as grader:
        rows = [("72", "72"), ("18", "17"), ("3.50", "3.5"), ("1/2", "0.5"), ("1234", "1,234")] * 4000
        start = time.perf_counter()
        verdicts = grader.grade(rows)
        seconds = time.perf_counter() - start
        assert verdicts == ["correct", "wrong", "correct", "correct", "correct"] * 4000
        assert len(rows) / seconds > 10_000
        assert grader._pool is None


def test_babble_of_an_untrained_model_needs_no_process():
    words = ["gets", "shells", "left", "12", "Jack", "6", "takes", "3", "+", "=", "?", "dollars", "of", "he", "####"]
    rng = random.Random(0)
    babble = [" ".join(rng.choices(words, k=rng.randint(6, 40))) for _ in range(2000)]
    verdicts = [settle("7", text) for text in babble]
    assert verdicts.count("wrong") + verdicts.count("unparsed") > 0.99 * len(babble)


def test_a_closed_grader_refuses():
    grader = Grader(workers=1, timeout_s=TIMEOUT_S)
    grader.close()
    with pytest.raises(RuntimeError, match="closed"):
        grader.grade([("x=5", "5")])


def test_which_golds_can_be_graded_against(grader):
    golds = [
        "5",
        "1,000",
        r"\frac{1}{2}",
        r"\cot x",
        r"\text{Evelyn}",
        "52_8",
        "(3,4]",
        "",
        r"\boxed{}",
        r"\frac{1}{",
        "...",
    ]
    assert grader.parses(golds) == [True] * 7 + [False] * 4


# ------------------------------------------------------------------------------------------------------- real data


def test_math_500_golds_equal_themselves_and_not_each_other(grader):
    golds = [row["answer"] for row in _mirror("math500/test.jsonl")]
    assert len(golds) == 500
    assert grader.parses(golds) == [True] * 500
    assert grader.grade([(gold, gold) for gold in golds]) == ["correct"] * 500

    distinct = list(dict.fromkeys(golds))
    other = random.Random(0).sample(distinct, len(distinct))
    pairs = [pair for pair in zip(distinct, other, strict=True) if pair[0] != pair[1]][:150]
    verdicts = grader.grade(pairs)
    assert {verdict for pair, verdict in zip(pairs, verdicts, strict=True) if not _same_number(*pair)} == {"wrong"}


def _same_number(a: str, b: str) -> bool:
    def bare(text: str) -> str:
        return text.replace("^\\circ", "").replace("\\$", "").replace("\\!", "").replace(",", "").replace(" ", "")

    return bare(a) == bare(b)


def test_math_500_solutions_box_their_gold_answer(grader):
    rows = _mirror("math500/test.jsonl")
    graded = grader.grade([(row["answer"], extract(row["solution"], "boxed")) for row in rows])
    assert graded.count("correct") >= 495
    assert graded.count("error") == graded.count("timeout") == 0


def test_gsm8k_golds_equal_themselves_and_not_their_neighbours(grader):
    texts = [row["answer"] for name in ("train", "test") for row in _mirror(f"gsm8k/{name}.jsonl")]
    golds = [extract(text, "marker") for text in texts]
    assert len(golds) == 8792
    assert None not in golds
    assert all(grader.parses(golds))
    assert grader.grade([(gold, gold) for gold in golds]) == ["correct"] * 8792
    pairs = list(zip(golds, golds[1:], strict=False))
    expected = [
        "correct" if int(a.replace(",", "")) == int(b.replace(",", "")) else "wrong" for a, b in pairs
    ]  # every gold of GSM8K is an integer
    assert grader.grade(pairs) == expected


# ------------------------------------------------------------------------------------------------------- processes


def _start(code: str, folder: Path) -> subprocess.Popen:
    script = folder / "training.py"
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    source = Path(__file__).parents[2] / "src"
    return subprocess.Popen(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _group(leader: int) -> list[int]:
    """Processes of a group that are not zombies."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(group) == leader and state != "Z":
            members.append(int(stat.parent.name))
    return members


def _wait_for(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_workers_stay_in_the_group_do_not_import_the_program_and_die_with_it(tmp_path):
    program = _start(
        """
        import time
        from pathlib import Path
        Path("imported").open("a").write(__name__ + "\\n")
        if __name__ == "__main__":
            from judgefree.scoring.grader import Grader
            grader = Grader(workers=2, timeout_s=60)
            print(grader.grade([("x=5", "5")]), flush=True)
            grader.grade([("5", r"\\binom{10000000}{5000000}")] )
        """,
        tmp_path,
    )
    try:
        assert program.stdout.readline() == "['correct']\n"
        assert (tmp_path / "imported").read_text() == "__main__\n"
        assert len(_group(program.pid)) >= 4  # the program and three workers
        program.kill()
        assert _wait_for(lambda: not _group(program.pid), 5.0), "workers outlive a killed program"
    finally:
        program.kill()
        program.communicate()


def test_a_signal_to_the_whole_group_costs_no_row_and_says_nothing(tmp_path):
    program = _start(
        """
        import signal, sys
        if __name__ == "__main__":
            from judgefree.scoring.grader import Grader
            seen = []
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda n, frame: seen.append(n))
            with Grader(workers=1, timeout_s=20) as grader:
                grader.grade([("x=5", "5")])
                print("ready", flush=True)
                while len(seen) < 2:
                    assert grader.grade([(f"x={n}", str(n)) for n in range(5)]) == ["correct"] * 5
                sys.stdin.readline()  # one more signal comes while nothing is graded
                print(grader.grade([("x=7", "7"), ("x=7", "8")]), flush=True)
        """,
        tmp_path,
    )
    try:
        assert program.stdout.readline() == "ready\n"
        os.killpg(program.pid, signal.SIGINT)
        time.sleep(0.2)
        os.killpg(program.pid, signal.SIGTERM)
        time.sleep(1.0)
        os.killpg(program.pid, signal.SIGTERM)
        time.sleep(0.3)
        out, err = program.communicate("\n", timeout=30)
        assert (out, err, program.returncode) == ("['correct', 'wrong']\n", "", 0)
        assert _wait_for(lambda: not _group(program.pid), 5.0)
    finally:
        program.kill()
        program.communicate()
