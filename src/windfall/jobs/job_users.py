"""As which Unix user a job runs, in the core's words: an account by its name, or a uid that belongs to one tenant.

Values, and the book of who has which uid. Must not know which accounts a machine has, nor what becomes of a process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.jobs.submitters import DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class RunAs:
    """The user of an attempt; exactly one of the two is set."""

    #: An account of the machine.
    account: str | None = None
    #: A number without an account, which is the group's number too.
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class UserRange:
    """The uids that tenants get, from `first` to `last`, both included."""

    first: int
    last: int
    #: Whether the default tenant gets one too; otherwise its jobs run as the daemon's job user.
    for_default: bool = False

    def __contains__(self, uid: int) -> bool:
        return self.first <= uid <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def words(self, job_user: str) -> str:
        """The users that jobs run as, after "jobs run as"."""
        if self.for_default:
            return f"a uid of {self} for each tenant"
        return f"{job_user}, those of other tenants as a uid of {self} each"

    def serves(self, tenant: str) -> bool:
        """Whether jobs of this tenant run as one of these."""
        return self.for_default or tenant != DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class TenantUser:
    """A uid that belongs to a tenant for ever: its files may be anywhere."""

    uid: int
    tenant: str


@dataclass(slots=True)
class UserBook:
    """All uids that were ever given to tenants."""

    owners: dict[int, str] = field(default_factory=dict)
    #: The same from the other side; several where the range has changed.
    uids: dict[str, list[int]] = field(default_factory=dict)

    def add(self, user: TenantUser) -> None:
        """Know a uid as a tenant's."""
        self.owners[user.uid] = user.tenant
        self.uids.setdefault(user.tenant, []).append(user.uid)

    def uid_of(self, tenant: str, wanted: UserRange) -> int | None:
        """The tenant's uid in a range; None when it has none there."""
        return next((uid for uid in self.uids.get(tenant, ()) if uid in wanted), None)

    def free_uid(self, wanted: UserRange) -> int | None:
        """The lowest uid of a range that was never given away; None when there is none left."""
        return next((uid for uid in range(wanted.first, wanted.last + 1) if uid not in self.owners), None)
