"""The owner of a job as a name: that of the key, else the account that its jobs run as, else the key's id.

The store has the id of the key that submitted a job. Its name is read from the keys file on demand, so revoked keys
have one too. Must not show a tenant what belongs to another: the reader that it is given does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from windfall.aws_api.protocol.errors import ApiError, KeyFileError
from windfall.aws_api.protocol.keys import load_keys
from windfall.aws_api.protocol.service import Call, Caller, Role
from windfall.control.ports import Store
from windfall.daemon.gateway import StoreReader
from windfall.jobs.ids import JobId
from windfall.jobs.submitters import Submitter
from windfall.jobs.tenants import qualified

#: Jobs that one request may name.
JOBS_MAX = 10_000

#: The name of the owner of something, as a caller sees it; None where it is not known.
OwnerOf = Callable[[Submitter], str | None]


def owner_of(submitter: Submitter, names: Mapping[str, str], *, with_tenant: bool) -> str | None:
    """The name of a submitter; callers that see all tenants get `<tenant>/<name>`."""
    name = names.get(submitter.key_id) or submitter.user or submitter.key_id
    if not name:
        return None
    return qualified(submitter.tenant, name) if with_tenant else name


class Owners:
    """The handler of `Owners`, and the names of owners for others."""

    def __init__(self, reader: StoreReader, keys_file: Path) -> None:
        self._reader = reader
        self._keys_file = keys_file

    async def named(self, caller: Caller) -> OwnerOf:
        """A function from submitters to owners' current names, for this caller."""
        names = await asyncio.to_thread(self._names)
        with_tenant = caller.role is Role.ADMIN
        return lambda submitter: owner_of(submitter, names, with_tenant=with_tenant)

    async def list(self, call: Call) -> dict[str, Any]:
        """The owners of these jobs (`jobIds`), and whether the caller's own key submitted each."""
        wanted = call.params.get("jobIds")
        if not isinstance(wanted, list) or not all(isinstance(job_id, str) for job_id in wanted):
            raise ApiError("Invalid", "jobIds is required (a list of job ids).")
        if len(wanted) > JOBS_MAX:
            raise ApiError("Invalid", f"jobIds may have at most {JOBS_MAX} ids, not {len(wanted)}.")
        ids = [JobId(job_id) for job_id in wanted]
        name_of = await self.named(call.caller)
        submitters: dict[JobId, Submitter] = await self._reader.read(lambda store: _submitters(store, ids))
        return {
            "owners": {
                job_id: {
                    "owner": name_of(submitter),
                    "tenant": submitter.tenant,
                    "mine": submitter.key_id == call.caller.access_key_id,
                }
                for job_id, submitter in submitters.items()
            }
        }

    def _names(self) -> dict[str, str]:
        try:
            return {key.access_key_id: key.name for key in load_keys(self._keys_file) if key.name}
        except KeyFileError:
            return {}


def _submitters(store: Store, ids: list[JobId]) -> dict[JobId, Submitter]:
    submitters = {job.id: job.submission.submitter for job in store.jobs(ids)}
    missing = [job_id for job_id in ids if job_id not in submitters]
    return submitters | {job.id: job.submitter for job in (store.service_jobs(missing) if missing else [])}
