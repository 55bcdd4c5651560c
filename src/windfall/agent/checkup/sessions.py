"""Whether an agent that was started over ssh outlives the session: logind can be told to end what a user leaves."""

from __future__ import annotations

import re

from windfall.agent.checkup.host import Host
from windfall.agent.checkup.verdicts import Verdict, bad, good, skipped

SESSIONS = "sessions"
_CONFIGURATION = "/etc/systemd/logind.conf"
_SETTING = re.compile(r"^\s*(KillUserProcesses|KillExcludeUsers)\s*=\s*(.*?)\s*$", re.MULTILINE)
_YES = {"yes", "true", "1", "on"}


def check_sessions(host: Host, user: str) -> Verdict:
    """Read logind's own configuration; `user` is who the agent runs as."""
    if host.read("/proc/1/comm") != "systemd\n":
        return skipped(SESSIONS, "no systemd here: nobody ends what a session leaves")
    parts = [
        _CONFIGURATION,
        *(
            f"{_CONFIGURATION}.d/{name}"
            for name in host.names(f"{_CONFIGURATION}.d")
            if name.endswith(".conf")
        ),
    ]
    settings = {"KillUserProcesses": "no", "KillExcludeUsers": "root"}
    for path in parts:
        settings |= dict(_SETTING.findall(host.read(path) or ""))
    if settings["KillUserProcesses"].lower() not in _YES:
        return good(SESSIONS, "what a session starts may outlive it")
    if user in settings["KillExcludeUsers"].split():
        return good(SESSIONS, f"logind ends what sessions leave, but spares {user}")
    return bad(
        SESSIONS,
        f"logind ends all processes of {user} when its last session does (KillUserProcesses=yes): jobs too",
        f"set KillExcludeUsers=root {user} in {_CONFIGURATION}, then: sudo systemctl restart systemd-logind",
    )
