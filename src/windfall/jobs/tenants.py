"""Names per tenant: how the names of two tenants are kept apart, and how each tenant reads its own.

A name of the tenant `default` is kept as it is, and a name of another tenant as `<tenant>/<name>`, because no name of
AWS's has a slash. Values only; must not know which things exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windfall.jobs.submitters import DEFAULT_TENANT

TENANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)

_SLASH = "/"
#: Names of log groups may have slashes, but no colon.
_COLON = ":"


def qualified(tenant: str, name: str) -> str:
    """The name by which a tenant's thing is kept."""
    return name if tenant == DEFAULT_TENANT else f"{tenant}{_SLASH}{name}"


def split_name(kept_name: str) -> tuple[str, str]:
    """The tenant, and the name that it gave."""
    tenant, slash, name = kept_name.partition(_SLASH)
    return (tenant, name) if slash else (DEFAULT_TENANT, kept_name)


def given_name(kept_name: str) -> str:
    """The name that a tenant gave, for texts that the tenant reads."""
    return split_name(kept_name)[1]


def qualified_log_group(tenant: str, group: str) -> str:
    """The name by which a tenant's log group is kept: `<tenant>:<group>`, or the group itself for `default`."""
    return group if tenant == DEFAULT_TENANT else f"{tenant}{_COLON}{group}"


def split_log_group(kept_name: str) -> tuple[str, str]:
    """The tenant, and the group as its jobs name it."""
    tenant, colon, group = kept_name.partition(_COLON)
    return (tenant, group) if colon else (DEFAULT_TENANT, kept_name)


def split_schedule(key: str) -> tuple[str, str]:
    """The group of a schedule as it is kept, and the schedule's name, from `<group>/<name>`."""
    group, _, name = key.rpartition(_SLASH)
    return group, name


def given_schedule(key: str) -> str:
    """`<group>/<name>` as the tenant knows it, from a schedule's kept key."""
    group, name = split_schedule(key)
    return f"{given_name(group)}/{name}"


@dataclass(frozen=True, slots=True)
class View:
    """What a caller sees: the things of one tenant, or those of all."""

    tenant: str
    #: Whether the caller is an administrator, who reads the names of other tenants as `<tenant>/<name>`.
    sees_all: bool = False

    @property
    def is_unlimited(self) -> bool:
        """Whether every name reads as it is kept."""
        return self.sees_all and self.tenant == DEFAULT_TENANT

    def sees(self, tenant: str) -> bool:
        """Whether the things of a tenant exist for this caller."""
        return self.sees_all or tenant == self.tenant

    def kept(self, name: str) -> str:
        """The kept name of what a caller names; one of another tenant becomes a name that nothing has."""
        if _SLASH not in name:
            return qualified(self.tenant, name)
        tenant, given = split_name(name)
        return qualified(tenant, given) if self.sees(tenant) else f"{_SLASH}{name}"

    def shown(self, kept_name: str) -> str:
        """How a caller reads a kept name: its own as given, others with their tenant."""
        tenant, given = split_name(kept_name)
        return given if tenant == self.tenant else f"{tenant}{_SLASH}{given}"

    def kept_log_group(self, group: str) -> str:
        """As `kept`, for a log group."""
        if _COLON not in group:
            return qualified_log_group(self.tenant, group)
        tenant, given = split_log_group(group)
        return qualified_log_group(tenant, given) if self.sees(tenant) else f"{_COLON}{group}"

    def shown_log_group(self, kept_name: str) -> str:
        """As `shown`, for a log group."""
        tenant, given = split_log_group(kept_name)
        return given if tenant == self.tenant else f"{tenant}{_COLON}{given}"
