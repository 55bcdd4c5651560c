"""StoredFiles, ListStored and ReadStored: what a job has in object storage, for clients without keys of the storage.

Decides what may be read: the checkpoints and outputs of a job that the caller can see, with the storage access of the
job's submitter. Bytes are passed on unchanged, a limited number at a time; the client verifies them. Must not know what
is in a checkpoint.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from windfall.agent.courier.stores import Stores
from windfall.agent.object_access import object_environment
from windfall.agent.sync.manifests import RESERVED
from windfall.aws_api.batch.children import child_at_rest
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.service import Call
from windfall.control.node_parts import own_staging
from windfall.control.ports import CorePort, Store
from windfall.control.storage_rules import access_within, kept_access
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.request_fields import needed_text, no_such_job
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import JobId, split_child, split_node
from windfall.jobs.job import Job
from windfall.jobs.staging import Output, Staging
from windfall.jobs.storage import StorageAccess, StoragePlace
from windfall.objects.errors import BadUri, NotFound, ObjectsError, Refused
from windfall.objects.port import Entry, ObjectStore

T = TypeVar("T")

#: The most bytes, and ranges, of one answer; this limits the memory that each reader needs.
READ_BYTES, READS_MAX = 1 << 20, 256
#: How many entries of a listing are read and sent at a time.
_PAGE = 1000
#: How many requests to object storage run at once; others wait without blocking the rest of the API.
_READERS = 4
_OPEN_STORES = 64


@dataclass(frozen=True, slots=True)
class ReadablePart:
    """One part of what a job has stored, open for reading."""

    store: ObjectStore
    #: Its only object; None if it is everything below `prefix`.
    only: str | None
    prefix: str

    def entries(self) -> Iterator[Entry]:
        """Everything in it."""
        if self.only is None:
            return iter(self.store.list(self.prefix))
        entry = self.store.head(self.only)
        return iter([] if entry is None else [entry])

    def holds(self, key: str) -> bool:
        """Whether an object of this name belongs to it."""
        if self.only is not None:
            return key == self.only
        return not self.prefix or key.startswith(f"{self.prefix}/")


class StoredLocation(NamedTuple):
    """Where the requested part is stored."""

    uri: str
    prefix: str = ""
    is_object: bool = False


class StorageReaders:
    """The threads that read object storage for all callers, and their open stores."""

    def __init__(self, objects: ObjectStorage, objects_file: Path) -> None:
        self.layout = objects.layout
        self._environment = objects.environment
        self._objects_file = str(objects_file)
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="stored")
        #: Opening a bucket costs more than reading from it.
        self.opened = lru_cache(_OPEN_STORES)(self._open)

    async def do(self, work: Callable[[], T]) -> T:
        """Use a store off the event loop; its errors become ApiError."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ObjectsError as error:
            raise _refusal(error) from None

    def _open(self, place: StoredLocation, access: StorageAccess) -> ReadablePart:
        stores = _DaemonStores(self._objects_file, access, self._environment)
        if place.is_object:
            return ReadablePart(*stores.open_object(place.uri), "")
        return ReadablePart(stores.open(place.uri), None, place.prefix)


class _DaemonStores(Stores):
    """Stores that the daemon itself opens, never with a key of its own API."""

    def __init__(self, objects_file: str, access: StorageAccess, environment: Mapping[str, str]) -> None:
        super().__init__(objects_file, access)
        self._environment = environment

    def variables(self) -> dict[str, str]:
        return object_environment(self._objects_file, self._environment)


class StoredFiles:
    """The operations, as one caller has them."""

    def __init__(self, gate: CorePort, readers: StorageReaders) -> None:
        self._gate = gate
        self._readers = readers

    async def describe(self, call: Call) -> dict[str, Any]:
        """What can be fetched of a job: its checkpoints, outputs and logs."""
        job = await self.job(call)
        staging = None if job.is_array else own_staging(job)
        checkpoints = staging.checkpoints if staging is not None else None
        container = await self._gate.read(lambda store: _container(store, job))
        group = None if container is None else container.log_group
        return {
            "jobId": job.id,
            "jobName": job.submission.name,
            "state": job.state,
            "arraySize": job.submission.array_size if job.is_array else None,
            "checkpointUri": None if checkpoints is None else checkpoints.uri,
            "outputs": [
                {"name": _output_name(output), "isArchive": output.archived}
                for output in (() if staging is None else staging.outputs)
            ],
            "logs": [
                {"attempt": attempt.number, "group": group, "stream": attempt.log_stream}
                for attempt in job.attempts
                if attempt.started_at is not None and group is not None
            ],
        }

    async def list(self, call: Call) -> Response:
        """Every object of a checkpoint directory or an output: a line of JSON for each, and a final line.

        A line is `[key, bytes, changed at]`. The final line is an object: `{"end": true}`, or `{"error": ...}` if the
        store failed.
        """
        part = await self._named(call)
        entries = await self._readers.do(part.entries)
        first = await self._readers.do(lambda: list(islice(entries, _PAGE)))
        return Response(200, b"application/x-ndjson", _lines(first), more=self._more(entries))

    async def _more(self, entries: Iterator[Entry]) -> AsyncIterator[bytes]:
        try:
            while page := await self._readers.do(lambda: list(islice(entries, _PAGE))):
                yield _lines(page)
        except ApiError as error:
            yield json.dumps({"error": error.message}).encode() + b"\n"
            return
        yield b'{"end":true}\n'

    async def read(self, call: Call) -> Response:
        """Ranges of objects, concatenated."""
        reads = _reads(call)
        part = await self._named(call)
        for key, _, _ in reads:
            if not part.holds(key):
                raise ApiError("NotFound", f"There is no {key[:200]!r} among the files of this job.", 404)
        contents = await self._readers.do(lambda: [part.store.get_range(*wanted) for wanted in reads])
        return Response(200, b"application/octet-stream", b"".join(contents))

    async def do(self, work: Callable[[], T]) -> T:
        """Use a store off the event loop; its errors become ApiError."""
        return await self._readers.do(work)

    async def _named(self, call: Call) -> ReadablePart:
        return await self.opened(await self.job(call), call.params.get("part"), call.params.get("output"))

    async def opened(self, job: Job, part: Any, number: Any) -> ReadablePart:
        """One part of what a job has stored: its checkpoint, or one of its outputs by number."""
        staging = None if job.is_array else own_staging(job)
        submitter = job.submission.submitter
        places = await self._gate.read(lambda store: tuple(store.declared(StoragePlace)))
        access = kept_access(access_within(self._readers.layout, places, submitter), submitter, staging)
        place = _place(part, number, job, staging)
        return await self._readers.do(lambda: self._readers.opened(place, access))

    async def job(self, call: Call) -> Job:
        """The job that a call names, if its caller sees it."""
        job_id = JobId(needed_text(call, "jobId"))
        job: Job | None = await self._gate.read(lambda store: found_job(store, job_id))
        if job is None:
            raise no_such_job(job_id)
        return job


def found_job(store: Store, job_id: JobId) -> Job | None:
    """A job by its id, also a main node or a child that never started, which have no record of their own."""
    (array, index), (gang, number) = split_child(job_id), split_node(job_id)
    jobs = {job.id: job for job in store.jobs(list({job_id, array, gang}))}
    if job_id in jobs:
        return jobs[job_id]
    if index is not None and array in jobs:
        return child_at_rest(jobs[array], index)
    whole = jobs.get(gang)
    return whole if whole is not None and number is not None and whole.node == number else None


def _container(store: Store, job: Job) -> ContainerSpec | None:
    submission = job.submission
    if submission.nodes is not None and job.node is not None:
        return submission.nodes.group(job.node).container
    if submission.container is not None or not submission.definition:
        return submission.container
    definition = store.definition(submission.definition)
    return None if definition is None else definition.container


def _output_name(output: Output) -> str:
    return "kept" if output.patterns else output.uri.rstrip("/").rpartition("/")[2]


def _place(part: Any, number: Any, job: Job, staging: Staging | None) -> StoredLocation:
    if part == "checkpoint":
        if staging is not None and staging.checkpoints is not None:
            return StoredLocation(staging.checkpoints.uri, RESERVED)
        raise ApiError("NotFound", f"The job {job.id} keeps no checkpoints.", 404)
    outputs: tuple[Output, ...] = () if staging is None else staging.outputs
    if part != "output" or type(number) is not int:
        raise ApiError("Invalid", "part must be checkpoint or output; for output, output must be its number.")
    if not 0 <= number < len(outputs):
        raise ApiError("NotFound", f"The job {job.id} has no output {number}.", 404)
    return StoredLocation(outputs[number].uri.rstrip("/"), is_object=outputs[number].archived)


def _reads(call: Call) -> list[tuple[str, int, int]]:
    """The requested ranges: `[key, start, end]` each."""
    ranges = call.params.get("reads")
    if not isinstance(ranges, list) or not 0 < len(ranges) <= READS_MAX or not all(map(_is_range, ranges)):
        raise ApiError(
            "Invalid",
            f"reads must be a list of 1 to {READS_MAX} items [key, start, end] with 0 <= start <= end.",
        )
    if sum(end - start for _, start, end in ranges) > READ_BYTES:
        raise ApiError("Invalid", f"reads may have {READ_BYTES:,} bytes in total; ask for fewer at a time.")
    return [(key, start, end) for key, start, end in ranges]


def _is_range(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3:
        return False
    key, start, end = value
    return isinstance(key, str) and type(start) is int and type(end) is int and 0 <= start <= end < 2**63


def _lines(entries: Iterable[Entry]) -> bytes:
    rows = ([entry.key, entry.bytes, entry.changed_at] for entry in entries)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _refusal(error: ObjectsError) -> ApiError:
    if isinstance(error, NotFound):
        return ApiError("NotFound", str(error), 404)
    if isinstance(error, Refused):
        return ApiError("StorageRefused", str(error), 403)
    if isinstance(error, BadUri):
        return ApiError("Invalid", str(error))
    return ApiError("StorageUnavailable", str(error), 503)
