"""ARNs of schedules and schedule groups.

One daemon has one account and serves every region, so that an ARN is read by its last part. Must not know whether a
thing exists.
"""

from __future__ import annotations

import re

from windfall.aws_api.scheduler.errors import InvalidRequest, shown
from windfall.jobs.tenants import TENANT_NAME

_NAME = r"[0-9a-zA-Z_.-]{1,64}"
#: An administrator reads the groups of other tenants with their tenant.
_OWNED = rf"(?:{TENANT_NAME.pattern}/)?{_NAME}"
_ARN = re.compile(
    rf"arn:aws(?:-[a-z]+)*:scheduler:[a-z0-9-]+:[0-9]{{12}}:"
    rf"(?:schedule-group/(?P<group>{_OWNED})|schedule/(?P<of>{_OWNED})/(?P<schedule>{_NAME}))",
    re.ASCII,
)


def group_arn(region: str, account_id: str, name: str) -> str:
    """`...:schedule-group/<name>`."""
    return f"arn:aws:scheduler:{region}:{account_id}:schedule-group/{name}"


def schedule_arn(region: str, account_id: str, key: str) -> str:
    """`...:schedule/<group>/<name>`."""
    return f"arn:aws:scheduler:{region}:{account_id}:schedule/{key}"


def tagged(arn: str) -> tuple[str, str | None]:
    """What an ARN names: a group, or a group and a schedule in it, which can have tags here."""
    match = _ARN.fullmatch(arn)
    if match is None:
        raise InvalidRequest(
            f"Invalid ResourceArn {shown(arn)}; write arn:aws:scheduler:<region>:<account>:schedule-group/<name>, or "
            "...:schedule/<group>/<name> for the tags of one schedule"
        )
    return match["group"] or match["of"], match["schedule"]
