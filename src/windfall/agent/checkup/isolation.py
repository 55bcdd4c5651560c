"""What keeps jobs apart: the user they run as, cgroups, namespaces with bubblewrap."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from windfall.agent.cgroups import CgroupTree, find_cgroups
from windfall.agent.checkup.host import Host
from windfall.agent.checkup.packages import install
from windfall.agent.checkup.verdicts import Verdict, bad, doubtful, good, skipped
from windfall.agent.credentials import JobUser, can_drop_in_one_thread, resolve_job_user
from windfall.agent.errors import AgentError
from windfall.agent.sandbox import SandboxTools, find_tools

USER, CGROUPS, SANDBOX = "job user", "cgroups", "namespaces"
_CLONE = "/proc/sys/kernel/unprivileged_userns_clone"
_RESTRICT = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


class Means(msgspec.Struct, frozen=True):
    """The agent's own tries, which really run a sandbox and move a process."""

    user: Callable[[str], JobUser] = resolve_job_user
    sandbox: Callable[[JobUser], SandboxTools | None] = find_tools
    cgroups: Callable[[str], CgroupTree | None] = find_cgroups


def check_isolation(host: Host, job_user: str, means: Means | None = None) -> Iterator[Verdict]:
    """Try what the agent will try at its start."""
    means = means or Means()
    try:
        user = means.user(job_user)
    except AgentError as error:
        yield bad(USER, str(error), "sudo useradd --system --no-create-home windfall-jobs")
        yield from (skipped(one, "not tried without a job user") for one in (CGROUPS, SANDBOX))
        return
    yield _user(host, user)
    tree = means.cgroups("windfall-doctor")
    yield _cgroups(host, tree)
    if tree is not None:
        tree.remove_if_empty()
    yield _sandbox(host, means.sandbox(user))


def _user(host: Host, user: JobUser) -> Verdict:
    if user.uid == 0:
        return doubtful(USER, "jobs would run as root and can read everything here", "use --job-user nobody")
    if user.drop and not can_drop_in_one_thread():
        return bad(
            USER, f"jobs cannot be run as {user.name} on this architecture", "start windfall as that user"
        )
    if not host.is_root:
        return good(USER, f"jobs run as you, {user.name}")
    return good(USER, f"jobs run as {user.name}")


def _cgroups(host: Host, tree: CgroupTree | None) -> Verdict:
    kind = _kind(host)
    if tree is None:
        mend = (
            "start windfall under systemd with Delegate=yes (systemd-run --user --scope -p Delegate=yes windfall up),"
            " or as root"
        )
        return doubtful(CGROUPS, f"{kind}; none can be written: vCPU limits are not enforced", mend)
    missing = [name for name in ("memory", "cpu") if name not in tree.controllers]
    if missing:
        return doubtful(
            CGROUPS,
            f"{kind}; {' and '.join(missing)} cannot be limited",
            f"delegate {' and '.join(missing)} to windfall's service (Delegate={' '.join(missing)})",
        )
    return good(CGROUPS, f"{kind}; memory and CPU can be limited")


def _kind(host: Host) -> str:
    mounts = host.read("/proc/mounts") or ""
    kinds = {line.split()[2] for line in mounts.splitlines() if len(line.split()) > 2}
    if {"cgroup", "cgroup2"} <= kinds:
        return "versions 1 and 2 mounted (hybrid)"
    if "cgroup2" in kinds:
        return "version 2"
    return "version 1" if "cgroup" in kinds else "not mounted"


def _sandbox(host: Host, tools: SandboxTools | None) -> Verdict:
    if tools is not None:
        own = "jobs can have /tmp, /dev/shm and /opt/ml of their own"
        return good(SANDBOX, f"{tools.words}: {own}" if tools.before else f"bubblewrap works: {own}")
    if host.run("bwrap", "--version") is None:
        return doubtful(
            SANDBOX,
            "bubblewrap is missing, and namespaces are not permitted without it: jobs share /tmp and /dev/shm",
            install(host, "bubblewrap"),
        )
    if (host.read(_RESTRICT) or "").strip() == "1" and not host.is_root:
        mend = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap"
    elif (host.read(_CLONE) or "").strip() == "0" and not host.is_root:
        mend = "sudo sysctl kernel.unprivileged_userns_clone=1"
    else:
        mend = "a container must be started with the right to make namespaces (--security-opt seccomp=unconfined)"
    return doubtful(SANDBOX, "bubblewrap is here and may not make namespaces", mend)
