"""Amounts as the advisor's sentences have them."""

from __future__ import annotations

from math import isnan


def percent(share: float) -> str:
    """A share as a whole per cent; small ones keep a digit."""
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.095 else f"{share:.0%}".replace("%", " %")


def rate(bytes_s: float) -> str:
    """Bytes a second, in the unit that fits."""
    return f"{bytes_s / 1e9:.1f} GB/s" if bytes_s >= 1e9 else f"{bytes_s / 1e6:.0f} MB/s"


def gbits(bytes_s: float) -> str:
    """A network's rate as networks are sold."""
    number = bytes_s * 8 / 1e9
    return f"{number:.1f} Gbit/s" if number < 10 else f"{number:.0f} Gbit/s"


def gib(size_bytes: float) -> str:
    """Memory in GiB."""
    return "unknown" if isnan(size_bytes) else f"{size_bytes / 2**30:.1f} GiB"


def usd(amount: float) -> str:
    """Dollars, cents for small amounts."""
    return f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.4f}"
