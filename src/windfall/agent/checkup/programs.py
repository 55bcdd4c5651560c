"""Programs that some jobs need: Git for code, nothing else that the host must bring."""

from __future__ import annotations

from windfall.agent.checkup.host import Host
from windfall.agent.checkup.packages import install
from windfall.agent.checkup.verdicts import Verdict, doubtful, good

GIT = "git"


def check_git(host: Host) -> Verdict:
    """Jobs that take their code from a repository need it."""
    asked = host.run("git", "--version")
    if asked is None or asked.code != 0:
        return doubtful(GIT, "missing: jobs cannot take their code from Git", install(host, "git"))
    return good(GIT, asked.output.partition("\n")[0])
