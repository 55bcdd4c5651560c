"""Which object storage the jobs of a submitter may use, asked when a job is submitted and when each attempt starts.

Decides from the submitter's key, the registered places and the daemon's own layout. A place that was removed is thus
out of reach for the next attempt. Must not know what lies anywhere.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.control.state import State
from windfall.jobs.errors import Invalid
from windfall.jobs.job import Job
from windfall.jobs.repositories import is_local, repository_problem
from windfall.jobs.staging import Staging
from windfall.jobs.storage import (
    BadLocation,
    Grant,
    StorageAccess,
    StorageLayout,
    StoragePlace,
    allowed,
    locate,
    not_allowed,
    uses_of,
)
from windfall.jobs.submitters import Submitter


def access_of(state: State, submitter: Submitter) -> StorageAccess:
    """What a submitter's jobs may use now."""
    return access_within(state.rules.storage, tuple(state.storage_places.values()), submitter)


def access_within(
    layout: StorageLayout, places: tuple[StoragePlace, ...], submitter: Submitter
) -> StorageAccess:
    """What a submitter's jobs may use; an admin key's may use everything that the daemon's user can reach."""
    bucket_root = layout.bucket_root(submitter.tenant)
    if submitter.is_admin:
        return StorageAccess(None, bucket_root)
    return StorageAccess(layout.grants(submitter.tenant, places), bucket_root)


def access_of_job(state: State, job: Job, staging: Staging | None) -> StorageAccess:
    """What an attempt of a job may use now."""
    submitter = job.submission.submitter
    return kept_access(access_of(state, submitter), submitter, staging)


def kept_access(access: StorageAccess, submitter: Submitter, staging: Staging | None) -> StorageAccess:
    """The access of a job, which may name more if it is of an earlier version, whose key is not known."""
    if submitter.key_id or access.grants is None or staging is None:
        return access
    named = tuple(
        Grant(uri, write) for uri, write in uses_of(staging) if not allowed(access.grants, uri, write)
    )
    local = staging.git is not None and is_local(staging.git.url)
    return StorageAccess((*access.grants, *named), access.bucket_root, local)


def check_staging(state: State, submitter: Submitter, staging: Staging | None) -> None:
    """Refuse a request that names a place which is none, or which the submitter's jobs may not use."""
    if staging is None:
        return
    problem = storage_problem(access_of(state, submitter), staging)
    if problem is not None:
        raise Invalid(problem)


def check_words_of_others(
    state: State, submitter: Submitter, staging: Staging | None, of_definition: Staging | None
) -> None:
    """Refuse what an admin's job takes from a definition that no admin registered, and that its author may not use.

    Otherwise an author of definitions could have an admin's job open what the author may not.
    """
    if staging is None or of_definition is None:
        return
    taken = Staging(
        of_definition.checkpoints if of_definition.checkpoints == staging.checkpoints else None,
        of_definition.git if of_definition.git == staging.git else None,
    )
    problem = storage_problem(access_of(state, replace(submitter, is_admin=False)), taken)
    if problem is not None:
        raise Invalid(
            f"{problem}. The job definition names it, and was not registered with an admin key: register it again with"
            " one, or name the place in the job itself"
        )


def storage_problem(access: StorageAccess, staging: Staging) -> str | None:
    """Why an attempt cannot have what is named for it; None when it can."""
    if staging.git is not None:
        problem = repository_problem(staging.git.url, local=access.may_clone_locally)
        if problem is not None:
            return problem
    for uri, write in uses_of(staging):
        try:
            locate(uri)
        except BadLocation as problem:
            return str(problem)
        if not allowed(access.grants, uri, write):
            return not_allowed(uri, write)
    return None
