"""Domain values as JSON text and back.

Decides what of a job stands in columns and what in its record. A field that the domain adds, with a default,
is stored and read without a change here. Must not know SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec

from windfall.capacity.consumables import ConsumableResource
from windfall.capacity.environments import ComputeEnvironment, JobQueue, ServiceEnvironment
from windfall.capacity.hosts import Host
from windfall.capacity.machines import Instance, Machine
from windfall.capacity.policies import QuotaShare, SchedulingPolicy, ShareUse
from windfall.control.outbox import OutboxEvent
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import JobId
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job, Submission
from windfall.jobs.job_users import TenantUser
from windfall.jobs.log_groups import LogGroup
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.states import JobState
from windfall.jobs.storage import StoragePlace
from windfall.schedules.schedule import Deletion, Schedule, ScheduleGroup, Tick
from windfall.store.errors import DamagedRecord, Unstorable
from windfall.store.tables import Row

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()


def encoded(thing: Any) -> str:
    """The JSON text of a domain value, or Unstorable."""
    try:
        return _ENCODER.encode(thing).decode()
    except (UnicodeEncodeError, TypeError) as error:
        raise Unstorable(f"cannot be stored: {error}; send valid Unicode text") from error


class Records(Generic[T]):
    """Reads records of one kind."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def decoded(self, record: str) -> T:
        """The value, or DamagedRecord when the text is none of ours."""
        try:
            return self._decoder.decode(record)
        except msgspec.MsgspecError as error:
            raise DamagedRecord(
                f"the store holds a record that cannot be read: {error}: {record[:200]}"
            ) from error


environments = Records(ComputeEnvironment)
queues = Records(JobQueue)
definitions = Records(JobDefinition)
images = Records(ImageMapping)
instances = Records(Instance)
machines = Records(Machine)
submissions = Records(Submission)
service_jobs = Records(ServiceJob)
ticks = Records(Tick)
outbox_events = Records(OutboxEvent)

#: What the kinds of declarations are called in the store.
KINDS: dict[Any, str] = {
    SchedulingPolicy: "scheduling-policy",
    QuotaShare: "quota-share",
    ShareUse: "share-use",
    ConsumableResource: "consumable-resource",
    ServiceEnvironment: "service-environment",
    Schedule: "schedule",
    ScheduleGroup: "schedule-group",
    Deletion: "deletion",
    TenantUser: "tenant-user",
    StoragePlace: "storage-place",
    LogGroup: "log-group",
    Host: "host",
    HostedModel: "model",
    HostedConfig: "endpoint-config",
    HostedEndpoint: "endpoint",
}
_declarations: dict[Any, Records[Any]] = {kind: Records(kind) for kind in KINDS}


def kind_name(kind: type[Any]) -> str:
    """What a kind of declaration is called in the store."""
    return KINDS[kind]


def declarations_of(kind: type[T]) -> Records[T]:
    """Reads declarations of one kind."""
    return _declarations[kind]


# A job: some fields are columns, the submission is a column of the parent's row, the rest is the record -----

_IN_COLUMNS = ("id", "parent", "index", "state", "created_at", "stopped_at", "order", "submission")
#: What is of the moment alone; it is the last of the fields.
_NOT_KEPT = ("moves",)
_KEPT_FIELDS = tuple(field for field in fields(Job) if field.name not in _NOT_KEPT)
assert fields(Job)[: len(_KEPT_FIELDS)] == _KEPT_FIELDS, "what is not kept must be the last of Job's fields"
_IN_RECORD = tuple(field.name for field in _KEPT_FIELDS if field.name not in _IN_COLUMNS)


def _record_type() -> type[msgspec.Struct]:
    """A struct of the remaining fields; unlike a dataclass it leaves out what has its default value."""
    hints = get_type_hints(Job)
    members: list[tuple[str, Any, Any]] = []
    for field in fields(Job):
        if field.name not in _IN_RECORD:
            continue
        member = msgspec.field()
        if field.default_factory is not MISSING:
            member = msgspec.field(default_factory=field.default_factory)
        elif field.default is not MISSING:
            member = msgspec.field(default=field.default)
        members.append((field.name, hints[field.name], member))
    return msgspec.defstruct("JobRecord", members, omit_defaults=True)


_JobRecord = _record_type()
_kept: Callable[[Job], Iterable[Any]] = attrgetter(*_IN_RECORD)
_job_records = Records(_JobRecord)
#: Puts column values followed by record values into the order of Job's own fields.
_in_field_order = itemgetter(*((*_IN_COLUMNS, *_IN_RECORD).index(field.name) for field in _KEPT_FIELDS))
_STATES = {state.value: state for state in JobState}


def job_record(job: Job) -> str:
    """What of a job stands in its record."""
    return encoded(_JobRecord(*_kept(job)))


class JobReader:
    """Makes jobs of rows; children of one array share its one Submission.

    Rows have: id, parent, child_index, state, created_at, stopped_at, ord, record, and the submission of the
    job or of its parent.
    """

    def __init__(self) -> None:
        self._shared: dict[str, Submission] = {}

    def job(self, row: Row) -> Job:
        """The job of one row."""
        job_id, parent, index, state, created_at, stopped_at, order, record, submission_text = row
        owner = parent or job_id
        submission = self._shared.get(owner)
        if submission is None:
            if submission_text is None:
                raise DamagedRecord(f"the store has child {job_id} but not its array {owner}")
            submission = submissions.decoded(submission_text)
            if parent is not None or submission.array_size is not None:
                self._shared[owner] = submission
        values = msgspec.structs.astuple(_job_records.decoded(record))
        columns = (JobId(job_id), parent, index, _STATES[state], created_at, stopped_at, order, submission)
        return Job(*_in_field_order(columns + values))

    def jobs(self, rows: Iterable[Row]) -> list[Job]:
        """The jobs of many rows."""
        return [self.job(row) for row in rows]
