"""Which uids this host has for tenants: those that the setting names, or a range that is free on this host.

Decides what a usable range is. Must not know which tenant gets which uid.
"""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from windfall.daemon.errors import BadSetting
from windfall.jobs.job_users import UserRange

#: Tried in this order by default. On hosts with several accounts the first range is often part of the subordinate uids
#: of their containers; the second is above everything that is assigned by default.
_USUAL = (UserRange(200_000, 200_999), UserRange(2_100_000_000, 2_100_000_999))
#: Below are system accounts; above, numbers that mean "no user" to some part of the system.
_FIRST, _LAST = 1_000, 4_294_967_293
_RESERVED = (65_534, 65_535)
_MAPS = (Path("/proc/self/uid_map"), Path("/proc/self/gid_map"))
_SUBORDINATE = (Path("/etc/subuid"), Path("/etc/subgid"))


@dataclass(frozen=True, slots=True)
class Accounts:
    """What a host says about its users."""

    #: Whether this process can start others as any user.
    able: bool
    #: Ranges of uids or gids that are not free: the owner, the first number, and the first one after the range.
    taken: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    @lru_cache(maxsize=1)
    def of_this_host(cls) -> Accounts:
        """Read accounts, groups, subordinate ids and the id maps of this container; once."""
        taken = [(f"{user.pw_name}'s", user.pw_uid, user.pw_uid + 1) for user in pwd.getpwall()]
        taken += [
            (f"the group {group.gr_name}'s", group.gr_gid, group.gr_gid + 1) for group in grp.getgrall()
        ]
        for path in _MAPS:
            end = 0
            for low, _, size in sorted(tuple(map(int, line.split())) for line in _lines(path)):
                taken.append(("missing in this container", end, low))
                end = low + size
            taken.append(("missing in this container", end, 2**32))
        for path in _SUBORDINATE:
            for line in _lines(path):
                name, first, count = [*line.split(":"), "", ""][:3]
                if first.isdecimal() and count.isdecimal():
                    taken.append((f"{name}'s in {path}", int(first), int(first) + int(count)))
        # Commands read settings too, and should not load the agent for it.
        from windfall.agent.credentials import can_drop_in_one_thread

        return cls(os.geteuid() == 0 and can_drop_in_one_thread(), tuple(taken))

    def owner_of(self, wanted: UserRange) -> str | None:
        """The owner of a part of the range; None when all of it is free."""
        return next(
            (name for name, low, high in self.taken if low <= wanted.last and wanted.first < high), None
        )


def uids_for_tenants(setting: str | None, accounts: Accounts | None = None) -> UserRange | None:
    """The uids of tenants; None if jobs cannot, or shall not, run as separate users. Raises BadSetting."""
    if setting == "none":
        return None
    accounts = accounts or Accounts.of_this_host()
    if setting is None:
        return next((it for it in _USUAL if accounts.able and accounts.owner_of(it) is None), None)
    first, _, last = setting.partition("-")
    wanted = UserRange(int(first), int(last), for_default=True)
    if not _FIRST <= wanted.first <= wanted.last <= _LAST or any(uid in wanted for uid in _RESERVED):
        raise BadSetting(
            f"job_users must be a range of uids from {_FIRST} to {_LAST} without {_RESERVED[0]} and {_RESERVED[1]},"
            f" not {setting!r}"
        )
    if not accounts.able:
        raise BadSetting(
            "job_users needs a daemon that runs as root: only root can start jobs as another user; remove it"
        )
    if (owner := accounts.owner_of(wanted)) is not None:
        raise BadSetting(f"job_users must be uids that are free on this host; some of {setting} are {owner}")
    return wanted


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []
