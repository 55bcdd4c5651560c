"""What can be wrong with a simulated market. Each text tells the user what to do.

Invalid (jobs)   a request that contradicts itself or a limit
└── BadTrace     a file that is not a recorded trace
"""

from __future__ import annotations

from windfall.jobs.errors import Invalid


class BadTrace(Invalid):
    """A file that cannot be read as a trace, or is none."""
