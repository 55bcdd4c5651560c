"""The identity behind a job: which key asked for it, for which tenant.

Values only. Decides what of a key the core remembers; must not know secrets, roles or how a key is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class Submitter:
    """The key that submitted a job or made a schedule."""

    tenant: str = DEFAULT_TENANT
    #: The id of the access key; empty where it is not known.
    key_id: str = ""
    #: Whether it is an admin key: its jobs may name any storage that the daemon's own user can reach.
    is_admin: bool = False
    #: The Unix account that its jobs run as, where an administrator has mapped the key to one.
    user: str | None = None

    def has_rights_of(self, other: Submitter) -> bool:
        """Whether jobs of both may do the same."""
        return (self.tenant, self.is_admin, self.user) == (other.tenant, other.is_admin, other.user)

    def may_steer(self, other: Submitter) -> bool:
        """Whether this key may decide what runs with the rights of the other: an admin, or one with those rights."""
        return self.is_admin or self.has_rights_of(other)


#: For records of earlier versions, and where it does not matter.
UNKNOWN = Submitter()
