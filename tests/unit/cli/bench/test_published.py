"""The published table, calculated with: every figure that the report tells comes out of the table itself."""

from __future__ import annotations

import pytest

from windfall.cli.bench import published
from windfall.cli.bench.suite.operations import BLUR, IMAGE, PRODUCT, BenchOperation


def test_the_speed_ups_are_those_of_the_table():
    ratios = [round(one.speed_up, 2) for one in published.TABLE]
    assert ratios == [0.02, 50.0, 36.5, 27.22, 1.81, 13.5, 1.81, 10.19, 2.25]


def test_the_gpu_is_flat_and_the_cpu_rises():
    warm = published.PRODUCTS[1:]
    assert [round(one.gpu_flop_s / 1e12, 1) for one in warm] == [25.0, 25.6, 22.2]
    assert [round(one.cpu_flop_s / 1e12, 2) for one in warm] == [0.5, 0.7, 0.82]


def test_rounding_cannot_turn_the_fall_into_a_rise():
    first, last = published.PRODUCTS[1], published.PRODUCTS[3]
    assert first.speed_up_bounds[0] == pytest.approx(33.0)
    assert last.speed_up_bounds[1] == pytest.approx(28.88, abs=0.01)
    assert first.speed_up_bounds[0] > last.speed_up_bounds[1]


def test_the_operations_are_a_part_of_the_total():
    cpu_s, gpu_s = published.sums()
    assert (round(cpu_s, 2), round(gpu_s, 2)) == (7.78, 1.63)
    assert round(published.ratio_without_cold(), 1) == 4.7


def test_two_lines_are_twins():
    [(one, other)] = published.twins()
    assert (one.operation.size, other.operation.size) == (2048, 4096)


def test_the_catalog_knows_the_instances():
    assert published.vcpus() == (16, 32)


@pytest.mark.parametrize(
    "figure",
    [
        "16 vCPUs",
        "50.0, 36.5, 27.2",
        "from 33 to 101",
        "25.0, 25.6, 22.2 TFLOP/s",
        "0.50, 0.70, 0.82",
        "12 MB take 1.2 ms at 10 GB/s (a modest figure)",
        "7.78 s and 1.63 s of 10.13 s and 3.03 s",
        "ratio is 4.7",
    ],
)
def test_the_findings_tell_the_figures(figure):
    assert any(figure in finding.figures for finding in published.findings())


def test_a_measured_way_to_the_gpu_takes_the_place_of_the_modest_figure():
    told = [finding.figures for finding in published.findings(24e9)]
    assert any("12 MB take 0.5 ms at 24 GB/s (measured here)" in text for text in told)


def test_a_line_is_found_by_its_operation_and_the_blur_by_its_kind():
    assert published.line(BenchOperation(PRODUCT, 5000)) is published.PRODUCTS[1]
    assert published.line(BenchOperation(IMAGE, 4096, 2)) is published.IMAGES[3]
    blur = published.line(BenchOperation(BLUR, 2048))
    assert blur is not None
    assert blur.cpu_s == 0.09
    assert published.line(BenchOperation(PRODUCT, 2000)) is None
