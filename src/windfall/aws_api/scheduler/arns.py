"""ARNs of schedules and schedule groups.

One daemon has one account and serves every region, so that an ARN is read by its last part. Must not know whether a
thing exists.
"""

from __future__ import annotations

import re

from windfall.aws_api.scheduler.errors import Invalid, shown

_NAME = r"[0-9a-zA-Z_.-]{1,64}"
_ARN = re.compile(
    rf"arn:aws(?:-[a-z]+)*:scheduler:[a-z0-9-]+:[0-9]{{12}}:"
    rf"(?:schedule-group/(?P<group>{_NAME})|schedule/(?P<schedule>{_NAME}/{_NAME}))",
    re.ASCII,
)


def group_arn(region: str, account_id: str, name: str) -> str:
    """`...:schedule-group/<name>`."""
    return f"arn:aws:scheduler:{region}:{account_id}:schedule-group/{name}"


def schedule_arn(region: str, account_id: str, key: str) -> str:
    """`...:schedule/<group>/<name>`."""
    return f"arn:aws:scheduler:{region}:{account_id}:schedule/{key}"


def tagged_key(arn: str) -> str:
    """What an ARN names: `<group>`, or `<group>/<name>` for a schedule, which can have tags here."""
    match = _ARN.fullmatch(arn)
    if match is None:
        raise Invalid(
            f"Invalid ResourceArn {shown(arn)}; write arn:aws:scheduler:<region>:<account>:schedule-group/<name>, or "
            "...:schedule/<group>/<name> for the tags of one schedule"
        )
    return match["group"] or match["schedule"]
