"""How spot capacity came and went in public traces. Written by `python -m bench.spot.prior`; do not edit.

Counted from the first half (15 February to 9 March 2023) of the availability of p3.2xlarge in nine zones of AWS, which
was first published in skypilot-org/spot-traces and is in andylizf/skynomad-artifact under the Apache License 2.0.
"""

from __future__ import annotations

from windfall.deadlines.market import Counts

#: By state: how many probes of ten minutes were made in it, and how many of them found that it had ended.
_PROBES = (
    *(418.0, 311.0, 438.0, 612.0, 791.0, 905.0, 720.0, 961.0),
    *(241.0, 178.0, 254.0, 410.0, 598.0, 669.0, 639.0, 664.0),
    *(192.0, 138.0, 195.0, 285.0, 422.0, 489.0, 277.0, 219.0),
    *(108.0, 88.0, 138.0, 222.0, 366.0, 420.0, 303.0, 387.0),
    *(430.0, 306.0, 425.0, 574.0, 734.0, 846.0, 943.0, 1593.0),
    *(227.0, 151.0, 209.0, 249.0, 327.0, 479.0, 528.0, 848.0),
    *(186.0, 144.0, 234.0, 331.0, 519.0, 717.0, 794.0, 2166.0),
    *(116.0, 89.0, 152.0, 214.0, 325.0, 393.0, 392.0, 776.0),
)
_ENDS = (
    *(107.0, 73.0, 60.0, 55.0, 43.0, 44.0, 19.0, 15.0),
    *(63.0, 46.0, 23.0, 18.0, 28.0, 36.0, 16.0, 11.0),
    *(53.0, 33.0, 25.0, 21.0, 13.0, 28.0, 13.0, 5.0),
    *(20.0, 14.0, 13.0, 12.0, 10.0, 25.0, 8.0, 6.0),
    *(124.0, 72.0, 68.0, 52.0, 43.0, 30.0, 20.0, 17.0),
    *(76.0, 37.0, 41.0, 26.0, 10.0, 14.0, 13.0, 10.0),
    *(42.0, 19.0, 30.0, 22.0, 15.0, 27.0, 12.0, 17.0),
    *(27.0, 8.0, 23.0, 10.0, 15.0, 15.0, 11.0, 7.0),
)


def public_prior() -> Counts:
    """The counts of the public traces."""
    return Counts(list(_PROBES), list(_ENDS))
