"""`python -m bench.spot.prior TRACES`: writes the public prior of windfall.deadlines from recorded traces.

Only the first half of the recorded time is used, so that the second half stays unseen by every table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.running_daemon import ROOT
from bench.spot.traces import cut, read_trace, track
from windfall.deadlines.market import Counts

TARGET = ROOT / "src/windfall/deadlines/public_prior.py"
_TEXT = '''"""How spot capacity came and went in public traces. Written by `python -m bench.spot.prior`; do not edit.

Counted from the first half (15 February to 9 March 2023) of the availability of p3.2xlarge in nine zones of AWS, which
was first published in skypilot-org/spot-traces and is in andylizf/skynomad-artifact under the Apache License 2.0.
"""

from __future__ import annotations

from windfall.deadlines.market import Counts

#: By state: how many probes of ten minutes were made in it, and how many of them found that it had ended.
_PROBES = (
{probes}
)
_ENDS = (
{ends}
)


def public_prior() -> Counts:
    """The counts of the public traces."""
    return Counts(list(_PROBES), list(_ENDS))
'''


def main(arguments: list[str]) -> int:
    """Count and write."""
    counts = Counts()
    for path in sorted(Path(arguments[0], "aws_v100_2023").glob("*.json")):
        counts.add(track(path.stem, [cut(read_trace(path), 0.0, 0.5)]).history)
    TARGET.write_text(_TEXT.format(probes=_rows(counts.probes), ends=_rows(counts.ends)))
    print(f"{TARGET} is written from {sum(counts.probes):.0f} probes and {sum(counts.ends):.0f} changes")
    return 0


def _rows(values: list[float]) -> str:
    rows = [values[begin : begin + 8] for begin in range(0, len(values), 8)]
    return "\n".join("    *(" + ", ".join(f"{value:.1f}" for value in row) + ")," for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
