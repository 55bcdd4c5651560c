"""Prometheus's text: what is written can be read back, whatever users put into names."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from windfall.views.metrics import Family, rendered

_LINE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>[-+.0-9einfa]+)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parsed(text: bytes) -> list[tuple[str, dict[str, str], float]]:
    """Read the format as strictly as a scraper does."""
    samples = []
    for line in text.decode().rstrip("\n").split("\n"):
        if line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        labels = {
            name: re.sub(r"\\.", lambda found: _ESCAPES[found.group()], value)
            for name, value in _LABEL.findall(match["labels"] or "")
        }
        samples.append((match["name"], labels, float(match["value"])))
    return samples


def test_families_have_their_help_and_type_once_and_empty_ones_are_left_out():
    busy = Family("windfall_gpu_busy_ratio", "gauge", "Part of the\ntime.")
    busy.add(0.5, gpu="GPU-1")
    busy.add(1, gpu="GPU-2")
    text = rendered([busy, Family("windfall_nothing", "gauge", "Never.")])
    assert text.decode().splitlines() == [
        "# HELP windfall_gpu_busy_ratio Part of the\\ntime.",
        "# TYPE windfall_gpu_busy_ratio gauge",
        'windfall_gpu_busy_ratio{gpu="GPU-1"} 0.5',
        'windfall_gpu_busy_ratio{gpu="GPU-2"} 1',
    ]


def test_what_is_not_known_is_left_out():
    family = Family("windfall_x", "gauge", "X.")
    family.add(math.nan, gpu="a")
    family.add(None, gpu="b")
    family.add(2.5, gpu="c", holder=None)
    assert parsed(rendered([family])) == [("windfall_x", {"gpu": "c"}, 2.5)]


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_name_and_number_comes_back_as_it_was(name, value):
    family = Family("windfall_x", "gauge", "X.")
    family.add(value, name=name)
    assert parsed(rendered([family])) == [("windfall_x", {"name": name}, value)]
