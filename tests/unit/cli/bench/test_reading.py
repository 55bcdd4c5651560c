"""From samples to lines, shares and break-evens."""

from __future__ import annotations

import pytest

from tests.unit.cli.bench.measured import ceiling, fact, on_gpu, product, results, told
from windfall.cli.bench.reading import Mode, break_evens, crossing, rate, row, rows, sizes, totals


def test_the_cpu_is_its_fastest_library_and_a_time_is_the_median():
    read = results(told(1000, (0.5, 0.1, 0.2)), told(1000, 0.3, library="torch"))
    line = row(read, product(1000), None)
    assert (line.cpu_s, line.cpu_library) == (0.2, "numpy")


def test_cold_holds_the_start_of_cuda_and_what_the_first_of_its_kind_loaded():
    read = results(
        fact("first_call_s", 0.25),
        *on_gpu(1000, 0.001, 0.01, first_s=0.06),
        *on_gpu(5000, 0.005, 0.08, first_s=0.09),
    )
    # The first product loaded for 0.06 - 0.01 s; another in a process of its own would have to do that too.
    assert row(read, product(1000), "torch").gpu_s[Mode.COLD] == pytest.approx(0.25 + 0.06)
    assert row(read, product(5000), "torch").gpu_s[Mode.COLD] == pytest.approx(0.25 + 0.05 + 0.09)


def test_the_sweep_is_no_part_of_the_table():
    read = results(told(1000, 0.02), told(512, 0.001), told(2048, 0.3, kind="image"))
    assert [line.operation.name for line in rows(read, None)] == [
        "Matrix 1000x1000",
        "Image 2048x2048 (batch 1)",
    ]


def test_a_product_is_measured_against_flops_and_an_image_against_bytes():
    read = results(
        *on_gpu(1000, 0.001),
        *on_gpu(2048, 0.001, kind="image"),
        ceiling("fp32_flop_s", 4e12),
        ceiling("memory_bytes_s", 1e12),
    )
    reached = rate(read, row(read, product(1000), "torch"), "gpu")
    assert (reached.per_s, reached.in_flops, reached.share) == (2e12, True, 0.5)
    [image] = [line for line in rows(read, "torch") if line.operation.kind == "image"]
    moved = 2048 * 2048 * 4 * 3 + 1024 * 1024 * 4
    assert rate(read, image, "gpu").share == pytest.approx(moved / 0.001 / 1e12)


def test_nothing_is_above_its_ceiling():
    read = results(ceiling("fp32_flop_s", 1e9, device="cpu", library="numpy"), told(1000, (0.02, 0.04)))
    assert read.ceiling("cpu", "fp32_flop_s") == pytest.approx(1e11)
    assert rate(read, row(read, product(1000), None), "cpu").share <= 1


def test_a_line_that_lacks_a_side_is_not_added_up():
    whole = results(told(1000, 1.0), *on_gpu(1000, 0.5, 0.7))
    assert totals(rows(whole, "torch")) == (1.0, {Mode.RESIDENT: 0.5, Mode.TRANSFER: 0.7})
    part = results(told(1000, 1.0), *on_gpu(1000, 0.5), *on_gpu(5000, 0.5))
    assert totals(rows(part, "torch"))[0] is None


def test_three_break_evens_each_later_than_the_one_before():
    lines = [fact("first_call_s", 0.2)]
    for edge in (16, 64, 256, 1000, 5000, 10000):
        lines += [told(edge, 2 * edge**3 / 1e12), *on_gpu(edge, 1e-5 + edge**3 / 2e13, 5e-5 + edge**2 / 1e9)]
    found = {one.mode: one.edge for one in break_evens(results(*lines), "torch")}
    assert 150 < found[Mode.RESIDENT] < 300
    assert found[Mode.RESIDENT] < found[Mode.TRANSFER] < found[Mode.COLD] < 10000


def test_the_crossing_lies_where_both_take_as_long():
    edge, note = crossing([(100, 0.5), (400, 2.0)])
    assert (edge, note) == (pytest.approx(200), "")


def test_a_size_at_which_the_cpu_wins_again_moves_the_break_even_up():
    assert crossing([(10, 2.0), (100, 0.5), (400, 2.0)])[0] == pytest.approx(200)


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([(16, 1.5), (32, 3.0)], "the GPU wins from the smallest size on that was measured, 16"),
        ([(16, 0.1), (32, 0.9)], "the CPU wins up to the largest size that was measured, 32"),
        ([], "nothing was measured"),
    ],
)
def test_lines_that_do_not_cross_are_told_apart(points, said):
    assert crossing(points) == (None, said)


def test_other_lines_of_a_log_are_passed_over():
    read = results("WARNING: something of a library", told(1000, 0.1))
    assert len(read.measurements) == 1


def test_sizes_are_those_that_both_did_in_order():
    read = results(told(1000, 1.0), told(16, 1e-6), told(64, 1e-5), *on_gpu(1000, 0.5), *on_gpu(16, 1e-5))
    assert [line.operation.size for line in sizes(read, "torch")] == [16, 1000]
