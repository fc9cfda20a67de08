"""What a method costs is told of the run that is measured, not of what the benchmark did before."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.method_cost import peak_memory

MIB = 2**20


def held_beside(size: int) -> tuple[int, int]:
    before = peak_memory()
    held = bytearray(size)
    held[::4096] = b"1" * len(held[::4096])  # every page is touched
    return before, peak_memory()


def test_the_peak_is_of_the_process_that_asks():
    heavy = bytearray(700 * MIB)
    heavy[::4096] = b"1" * len(heavy[::4096])
    parent = peak_memory()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        before, after = pool.submit(held_beside, 200 * MIB).result()
    assert parent - 600 * MIB > 0 and before < parent - 200 * MIB
    assert 190 * MIB <= after - before <= 300 * MIB
