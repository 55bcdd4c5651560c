"""Which user the jobs of a key run as, and whether that keeps tenants apart.

A key that is mapped to an account has that one; otherwise a tenant has a uid of its own where the daemon may use any,
and what is left runs as the daemon's job user. Where neither users nor a sandbox keep jobs of two tenants apart, only
the first tenant may run some. Decides that; must not know accounts, nor how a process gets its user.
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.capacity.machines import Machine
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.containers import Runtime
from windfall.jobs.errors import Invalid
from windfall.jobs.images import is_container
from windfall.jobs.job_users import RunAs, TenantUser, UserRange
from windfall.jobs.submitters import Submitter

#: The fact of a machine whose agent can start a process as any user.
ANY_USER = "any_user"
#: What the fact `isolation` names where sandboxes work.
_SANDBOX = "bubblewrap"


def check_user(state: State, submitter: Submitter, images: Iterable[str], wish: Runtime | None) -> None:
    """Raise Invalid for a job of a key whose jobs cannot be run here; `images` are those of its containers."""
    # The agents of a daemon are of one host; what another one would have is found out at the start.
    machine = next(iter(state.machines.values()), None)
    if machine is not None and not _is_apart(state, submitter, machine):
        has_engine, mappings = bool(machine.facts.get("containers")), state.images.values()
        rule = state.rules.runtime
        if not all(is_container(image, wish, rule, mappings, has_engine=has_engine) for image in images):
            raise Invalid(_why_refused(state, submitter, machine))
    uids, users = _uids_for(state, submitter), state.job_users
    if uids is None or users.uid_of(submitter.tenant, uids) is not None:
        return
    if users.free_uid(uids) is None:
        raise Invalid(_none_left(submitter, uids))


def claim_user(state: State, submitter: Submitter, round_: Round) -> None:
    """Give a tenant its uid, if it has none yet and one is left; what it has once it keeps for ever."""
    uids = _uids_for(state, submitter)
    if uids is None or state.job_users.uid_of(submitter.tenant, uids) is not None:
        return
    uid = state.job_users.free_uid(uids)
    if uid is not None:
        given = TenantUser(uid, submitter.tenant)
        round_.changes.declared[TenantUser, str(uid)] = given
        state.job_users.add(given)


def user_of(
    state: State, submitter: Submitter, machine: Machine | None, *, contained: bool
) -> RunAs | str | None:
    """The user of an attempt, None for the daemon's job user; or why it must not be started there."""
    if not contained and machine is not None and not _is_apart(state, submitter, machine):
        return _why_refused(state, submitter, machine)
    if submitter.user is not None:
        return RunAs(account=submitter.user)
    uids = _uids_for(state, submitter)
    if uids is None:
        return None
    uid = state.job_users.uid_of(submitter.tenant, uids)
    return _none_left(submitter, uids) if uid is None else RunAs(uid=uid)


def expected_user(state: State, submitter: Submitter) -> RunAs | None:
    """The user that a job of this key would get, None for the daemon's job user; nothing is claimed."""
    if submitter.user is not None:
        return RunAs(account=submitter.user)
    uids = _uids_for(state, submitter)
    if uids is None:
        return None
    uid = state.job_users.uid_of(submitter.tenant, uids) or state.job_users.free_uid(uids)
    return None if uid is None else RunAs(uid=uid)


def has_strangers(state: State, submitter: Submitter) -> bool:
    """Whether another tenant may have jobs beside one of this key, so that they must not see one another."""
    tenants = state.tenants
    return len(tenants) > 1 or (len(tenants) == 1 and tenants[0] != submitter.tenant)


def _uids_for(state: State, submitter: Submitter) -> UserRange | None:
    """Where the uid of jobs of this key comes from; None when they run as something else."""
    uids = state.rules.job_users
    return None if submitter.user is not None or uids is None or not uids.serves(submitter.tenant) else uids


def _none_left(submitter: Submitter, uids: UserRange) -> str:
    return (
        f"Tenant {submitter.tenant} cannot run jobs: all {uids.last - uids.first + 1:,} uids of --job-users {uids}"
        " belong to other tenants. Start the daemon with a larger range"
    )


def _is_apart(state: State, submitter: Submitter, machine: Machine) -> bool:
    """Whether a process of this key is kept from the jobs of other tenants, or has the job user to itself."""
    if submitter.tenant == state.first_tenant or _SANDBOX in machine.facts.get("isolation", ""):
        return True
    return ANY_USER in machine.facts and (
        submitter.user is not None or _uids_for(state, submitter) is not None
    )


def _why_refused(state: State, submitter: Submitter, machine: Machine) -> str:
    problem = (
        f"Jobs of tenant {submitter.tenant} cannot be kept apart from those of tenant {state.first_tenant}:"
        " bubblewrap is missing or not permitted here, and "
    )
    if ANY_USER in machine.facts:
        return (
            f"{problem}tenants have no users of their own. Start the daemon with --job-users FIRST-LAST,"
            " or install bubblewrap"
        )
    return (
        f"{problem}a daemon that is not root runs all jobs as one user. Install bubblewrap, or run the daemon as root,"
        " where each tenant has a user of its own (--job-users)"
    )
