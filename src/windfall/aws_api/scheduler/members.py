"""Members of requests that mean less here than on AWS, for the coverage page.

Decides nothing. Must not know when something is refused; targets.py does.
"""

from __future__ import annotations

from windfall.aws_api.scheduler.targets import FOREIGN

_KEPT = ("KmsKeyArn", "Target.RoleArn")
_REFUSED = tuple(f"Target.{member}" for member in FOREIGN)

#: Kept and given back, without effect.
KEPT = {"CreateSchedule": _KEPT, "UpdateSchedule": _KEPT}
REFUSED = {"CreateSchedule": _REFUSED, "UpdateSchedule": _REFUSED}
