"""How advice is laid out; what it says is the daemon's."""

from __future__ import annotations

from typing import Any

from windfall.cli.advise import gain_text

NOTHING = {"timeFactor": None, "utilisation": None, "usdHour": None, "usdJob": None}


def gain(**more: Any) -> str:
    return gain_text(NOTHING | more)


def test_a_gain_has_the_numbers_that_there_are():
    whole = gain(timeFactor=0.4, utilisation=0.5, usdHour=31.212, usdJob=124.848)
    assert (
        whole == "predicted: 40 % of the time, GPU busy for 50 %, $31.21 an hour, $124.85 for its time so far"
    )
    assert gain(timeFactor=1.0) == "predicted: 100 % of the time"


def test_no_number_is_no_prediction():
    assert gain() == ""
    assert gain(usdHour=3.0) == ""
