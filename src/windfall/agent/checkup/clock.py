"""The clock: signatures are refused when it is more than minutes off, and schedules run by it."""

from __future__ import annotations

from windfall.agent.checkup.host import Host
from windfall.agent.checkup.packages import install
from windfall.agent.checkup.verdicts import Verdict, doubtful, good, skipped

CLOCK = "clock"


def check_clock(host: Host) -> Verdict:
    """Ask the time service whether the clock is synchronised."""
    asked = host.run("timedatectl", "show", "--property=NTPSynchronized", "--value")
    if asked is not None and asked.code == 0:
        if asked.output.strip() == "yes":
            return good(CLOCK, "kept by NTP")
        return doubtful(CLOCK, "NTP is not synchronised", "sudo timedatectl set-ntp true")
    chrony = host.run("chronyc", "-c", "tracking")
    if chrony is not None and chrony.code == 0:
        return _by_chrony(chrony.output)
    if any(host.read(path) is not None for path in ("/.dockerenv", "/run/.containerenv")):
        return skipped(CLOCK, "a container has its host's clock")
    return doubtful(CLOCK, "nobody here says that it is kept", install(host, "chrony"))


def _by_chrony(answer: str) -> Verdict:
    fields = answer.split(",")
    try:
        offset_s = float(fields[4])
    except (IndexError, ValueError):
        return skipped(CLOCK, "chrony answers in a form that is not understood")
    if abs(offset_s) > 1:
        return doubtful(CLOCK, f"{offset_s:+.1f} s off by chrony", "sudo chronyc makestep")
    return good(CLOCK, f"kept by chrony, {offset_s * 1000:+.2f} ms off")
