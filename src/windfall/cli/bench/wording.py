"""Seconds, rates and shares of the benchmark as people read them: three digits, the unit that fits."""

from __future__ import annotations

MISSING = "-"


def seconds(value: float | None) -> str:
    """A time in µs, ms or s."""
    if value is None:
        return MISSING
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if value * factor < 999.5:
            return f"{digits(value * factor)} {unit}"
    return f"{digits(value)} s"


def times(value: float | None) -> str:
    """A ratio."""
    return MISSING if value is None else f"{digits(value)}x"


def rate(value: float | None, *, in_flops: bool) -> str:
    """Floating-point operations or bytes a second."""
    if value is None:
        return MISSING
    if not in_flops:
        return f"{digits(value / 1e9)} GB/s"
    return f"{digits(value / 1e12)} TFLOP/s" if value >= 1e12 else f"{digits(value / 1e9)} GFLOP/s"


def share(value: float | None) -> str:
    """A part of a whole, in per cent."""
    return MISSING if value is None else f"{digits(value * 100)} %"


def digits(value: float) -> str:
    """Three digits that count, and all those before the point."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.2g}"
