"""What is printed and drawn."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.unit.cli.bench.measured import ceiling, fact, on_gpu, results, told
from windfall.cli.bench.plot import draw
from windfall.cli.bench.reading import rows, sizes
from windfall.cli.bench.report import print_report
from windfall.cli.bench.wording import rate, seconds, share, times


def a_whole_run():
    return results(
        told(1000, 0.02),
        told(10000, 1.51),
        told(16, 1e-6),
        told(256, 1e-4),
        fact("first_call_s", 0.2),
        fact("import_s", 2.5),
        fact("gpu", "NVIDIA H200"),
        fact("version", "2.11"),
        *on_gpu(1000, 5e-5, 2e-3, first_s=0.05),
        *on_gpu(10000, 0.041, 0.35, first_s=0.4),
        *on_gpu(16, 1e-5, 4e-5),
        *on_gpu(256, 2e-5, 2e-4),
        told(10000, 0.006, device="gpu", library="torch", precision="tf32"),
        told(10000, 0.1, device="gpu", library="torch", measure="end_to_end_pinned"),
        ceiling("fp32_flop_s", 52e12),
        ceiling("to_gpu_bytes_s", 12e9),
    )


def test_the_report_tells_the_table_the_parts_and_the_break_evens(capsys):
    print_report(a_whole_run())
    printed = capsys.readouterr().out
    for said in (
        "CPU beside NVIDIA H200 with torch 2.11",
        "Matrix 10000x10000",
        "36.8x",
        "88.3 % is the way there and\n  back; from page-locked memory it takes 100 ms",
        "The first CUDA call of a process takes 200 ms",
        "resident: below",
        "with transfer: below",
        "cold: below",
        "(measured here)",
        "r5.4xlarge has 16 vCPUs",
        "48.8 TFLOP/s",
        "333 TFLOP/s",
    ):
        assert said in printed, said


def test_without_a_gpu_the_report_has_the_cpu_alone(capsys):
    print_report(results(told(1000, 0.02)))
    printed = capsys.readouterr().out
    assert "The suite on the CPU" in printed
    assert "RESIDENT" not in printed
    assert "What this says" not in printed


def test_the_drawing_is_valid_and_has_every_line():
    read = a_whole_run()
    drawn = ET.fromstring(draw(sizes(read, "torch"), "A <CPU> & a GPU"))
    texts = [element.text for element in drawn.iter() if element.tag.endswith("}text")]
    assert "A <CPU> & a GPU" in texts
    assert {"CPU", "GPU resident", "GPU with transfer", "GPU cold", "published (A10G)"} <= set(texts)
    lines = [element for element in drawn.iter() if element.tag.endswith("}polyline")]
    # Four of times and three of speed-ups; the published ones are dots.
    assert len(lines) == 7
    places = [float(x) for line in lines for pair in line.get("points", "").split() for x in pair.split(",")]
    assert all(0 <= place <= 1120 for place in places)


def test_without_a_gpu_the_times_alone_are_drawn():
    drawn = draw(rows(results(told(1000, 0.02)), None), "CPU")
    assert drawn.count("<polyline") == 1
    assert "Speed-up" not in drawn


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.5e-6, "1.50 µs"),
        (0.0415, "41.5 ms"),
        (0.9996, "1.00 s"),
        (12.345, "12.3 s"),
        (1234.0, "1,234 s"),
        (None, "-"),
    ],
)
def test_times_have_three_digits(value, said):
    assert seconds(value) == said


def test_rates_ratios_and_shares():
    assert rate(2.5e13, in_flops=True) == "25.0 TFLOP/s"
    assert rate(5e11, in_flops=True) == "500 GFLOP/s"
    assert rate(4.8e12, in_flops=False) == "4,800 GB/s"
    assert (times(0.0227), times(36.8), share(0.005)) == ("0.02x", "36.8x", "0.50 %")
    assert (rate(None, in_flops=True), times(None), share(None)) == ("-", "-", "-")
