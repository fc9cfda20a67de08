"""How much quicker ROUGE is in processes than one by one: `python benchmarks/rouge_speed.py [SECONDS] [WORKERS]`.

Texts are made until one by one takes about SECONDS of CPU time (60); both ways score the same texts in the same run, and the
values must be equal. The figure is worth something on a machine that does nothing else.
"""

import random
import sys
import time

from judgefree.scoring.rouge import Row, in_processes, rouge

WORDS = [f"word{number}" for number in range(4000)]


def pair(seed: int) -> Row:
    """A summary and a reference of a government report's usual length, a fifth of whose words are frequent ones."""
    rng = random.Random(seed)

    def text(words: int) -> str:
        chosen = (rng.choice(WORDS[:20] if rng.random() < 0.2 else WORDS) for _ in range(words))
        return "".join(f"{word}{'.' + chr(10) if rng.random() < 0.04 else ' '}" for word in chosen)

    return text(rng.randint(300, 900)), [text(rng.randint(400, 800))]


def timed(rows: list[Row], workers: int) -> tuple[float, list[dict[str, float]]]:
    started = time.perf_counter()
    scores = in_processes(rows, workers) if workers > 1 else [rouge(*row) for row in rows]
    return time.perf_counter() - started, scores


def main(seconds: float, workers: int) -> None:
    sample = [pair(seed) for seed in range(50)]
    rouge(*sample[0])  # loads the stemmer
    started = time.process_time()
    timed(sample, 1)
    count = max(2 * workers, round(seconds / (time.process_time() - started) * len(sample)))
    rows = [pair(seed) for seed in range(count)]
    (serial, one_by_one), (parallel, shared) = timed(rows, 1), timed(rows, workers)
    if shared != one_by_one:
        raise SystemExit("the values differ")
    print(f"{count} pairs: one by one {serial:.1f} s, {workers} processes {parallel:.1f} s, "
          f"{serial / parallel:.2f} times as fast; equal values")  # fmt: skip


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    main(given[0] if given else 60.0, int(given[1]) if len(given) > 1 else 2)
