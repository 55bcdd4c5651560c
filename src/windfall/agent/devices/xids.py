"""What the NVIDIA driver's XID errors mean for the next job on the device.

The source is NVIDIA's own catalog (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog") and
the health checks it publishes (docs.nvidia.com/health-validation); what counts as a program's own fault follows
NVIDIA's Kubernetes device plugin. A code that is in no table here is only noted: a new driver may have new ones.
"""

from __future__ import annotations

from typing import NamedTuple


class Xid(NamedTuple):
    """One code, in words."""

    words: str
    #: Whether nothing can be trusted to run on the device before it is reset.
    needs_reset: bool = False
    #: Whether it was a program's own fault, and says nothing of the device.
    own_fault: bool = False


XIDS: dict[int, Xid] = {
    8: Xid("a program's work did not end in time", own_fault=True),
    13: Xid("a program made the graphics engine fail", own_fault=True),
    31: Xid("a program used memory that was not its own", own_fault=True),
    43: Xid("a program's work was stopped", own_fault=True),
    45: Xid("a program was cut off, often after an earlier error", own_fault=True),
    46: Xid("the GPU stopped processing", needs_reset=True),
    48: Xid("an uncorrectable error in its memory", needs_reset=True),
    61: Xid("its internal controller halted", needs_reset=True),
    62: Xid("its internal controller halted", needs_reset=True),
    63: Xid("a bad row of its memory was marked, to be replaced at the next reset"),
    64: Xid("a bad row of its memory could not be marked", needs_reset=True),
    68: Xid("a program made the video engine fail", own_fault=True),
    69: Xid("a program made the graphics engine fail", own_fault=True),
    74: Xid("an NVLink to another GPU or switch failed", needs_reset=True),
    79: Xid("it has fallen off the bus", needs_reset=True),
    92: Xid("many corrected memory errors"),
    94: Xid("an uncorrectable memory error that reached one program alone"),
    95: Xid("an uncorrectable memory error that may have reached any program", needs_reset=True),
    109: Xid("a program's context could not be switched in time", own_fault=True),
    110: Xid("a fault of its security engine", needs_reset=True),
    119: Xid("its system processor does not answer", needs_reset=True),
    120: Xid("its system processor failed", needs_reset=True),
    121: Xid("its link to the CPU had an error"),
    136: Xid("an NVLink could not be brought up", needs_reset=True),
    140: Xid("an uncorrected error in its memory", needs_reset=True),
    143: Xid("it could not be initialised", needs_reset=True),
}

UNKNOWN = Xid("not in the list that Windfall knows")
