"""All that the reactor remembers: declarations, live jobs, and what is derived from them.

Finished jobs leave memory (the store has them); the recent ones are remembered by id so that a dependency on a job
that has just finished is understood. Only the reactor's modules change this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from windfall.accounting.prices import Rates
from windfall.capacity.consumables import ConsumableResource
from windfall.capacity.environments import ComputeEnvironment, JobQueue, ServiceEnvironment
from windfall.capacity.hosts import Host
from windfall.capacity.machines import Instance, Machine, Offer
from windfall.capacity.occupancy import Occupancy
from windfall.capacity.policies import QuotaShare, SchedulingPolicy
from windfall.control.aws_texts import AwsTexts, PlainTexts
from windfall.control.backlog import Backlog
from windfall.control.calendar_index import CalendarIndex
from windfall.control.claims import LeftPlaces
from windfall.control.events import FinishedJob
from windfall.control.share_meters import ShareMeters
from windfall.deadlines.solving import PolicyTable, PolicyTerms
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel
from windfall.jobs.arrays import ChildTable
from windfall.jobs.containers import Runtime
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job
from windfall.jobs.job_users import UserBook, UserRange
from windfall.jobs.log_groups import LogGroup
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.storage import StorageLayout, StoragePlace
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import given_name
from windfall.schedules.schedule import Deletion, Schedule, ScheduleGroup, Tick
from windfall.schedules.zones import Zones, utc_only
from windfall.scheduling.snapshot import MachineView, SchedulingRules

DAY_MS = 24 * 3600 * 1000
#: How long a client token stands for the request that it came with.
CLIENT_TOKEN_MS = 8 * 3600 * 1000


def no_tables(_terms: PolicyTerms) -> PolicyTable | None:
    """No table has been solved: deadlines are kept by steady progress within the shield."""
    return None


@dataclass(frozen=True, slots=True)
class SpotPool:
    """What is visible of the spot capacity of a queue: whether it is there, and since when. In memory alone."""

    up: bool
    since: int
    #: How long the last time up and the last outage were. At first it is not known, and taken for long.
    last_up_s: float = 86_400.0
    last_down_s: float = 86_400.0
    #: When it was looked at last: many jobs may ask in one round.
    seen_at: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """The core's settings."""

    scheduling: SchedulingRules = field(default_factory=SchedulingRules)
    #: How long finished jobs stay visible.
    retention_ms: int = 7 * DAY_MS
    #: How long a stopped attempt has between SIGTERM and SIGKILL, and how long that of a training job has.
    grace_s: float = 30.0
    training_grace_s: float = 120.0
    #: How long an attempt has when its place is taken back or its budget is spent.
    notice_s: float = 120.0
    #: What stopping and starting again costs an attempt beside the work that is in no checkpoint.
    restart_s: float = 30.0
    #: Where objects are kept, and which of them belong to which tenant.
    storage: StorageLayout = field(default_factory=StorageLayout)
    #: What capacity costs that has no price of its own.
    rates: Rates = field(default_factory=Rates)
    #: Engines whose instances have no price of their own; None is the default engine.
    unpriced_engines: frozenset[str | None] = frozenset()
    #: What an attempt is when its job does not say.
    runtime: Runtime = Runtime.AUTO
    #: Who hears of every state that a job comes to; without any nothing is noted.
    event_destinations: tuple[str, ...] = ()
    #: The rules of time zones, by name.
    zones: Zones = utc_only
    #: The uids that tenants get; None where jobs cannot run as any user, or are not to.
    job_users: UserRange | None = None
    #: How long it usually takes from the decision to place a job until it works, for a job that was never placed.
    changeover_s: float = 120.0
    #: The table of best actions between spot and on-demand capacity for some terms, if it has been solved.
    policy_tables: Callable[[PolicyTerms], PolicyTable | None] = no_tables
    #: How AWS says what clients compare.
    aws_texts: AwsTexts = field(default_factory=PlainTexts)


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """A kind of instance that could not be had the last times."""

    reason: str
    failures: int
    again_at: int


@dataclass(frozen=True, slots=True)
class RecentEnd:
    """A job that has just left memory."""

    at: int
    job: FinishedJob
    tenant: str = DEFAULT_TENANT


#: How long an end is remembered: far longer than a request takes from the look into the store to the reactor.
RECENT_MS = 10_000


@dataclass(slots=True)
class Waits:
    """What a PENDING job, or an array whose children wait for others, still waits for."""

    #: Jobs that must succeed as a whole.
    whole: set[JobId] = field(default_factory=set)
    #: Live arrays whose child of the same index must succeed (N_TO_N).
    n_to_n: set[JobId] = field(default_factory=set)
    #: Whether child i waits for child i-1.
    sequential: bool = False
    #: Whether children had to wait for others at submission, even if all of those have succeeded since.
    by_child: bool = False


@dataclass(slots=True)
class State:
    """The reactor's memory."""

    rules: Rules = field(default_factory=Rules)
    environments: dict[EnvironmentName, ComputeEnvironment] = field(default_factory=dict)
    queues: dict[QueueName, JobQueue] = field(default_factory=dict)
    definitions: dict[str, dict[int, JobDefinition]] = field(default_factory=dict)
    images: dict[str, ImageMapping] = field(default_factory=dict)
    #: By their keys.
    storage_places: dict[str, StoragePlace] = field(default_factory=dict)
    #: The hosts that the user listed, by their names.
    hosts: dict[str, Host] = field(default_factory=dict)
    policies: dict[str, SchedulingPolicy] = field(default_factory=dict)
    #: What the shares of fair-share queues use.
    shares: ShareMeters = field(default_factory=ShareMeters)
    #: By `<queue>/<share>`.
    quota_shares: dict[str, QuotaShare] = field(default_factory=dict)
    consumables: dict[str, ConsumableResource] = field(default_factory=dict)
    #: What is declared of log groups.
    log_groups: dict[str, LogGroup] = field(default_factory=dict)
    #: Which live jobs hold how many tokens of a consumable resource.
    token_holders: dict[str, dict[JobId, int]] = field(default_factory=dict)
    service_environments: dict[str, ServiceEnvironment] = field(default_factory=dict)
    #: Live service jobs, in the order of their submission.
    service_jobs: dict[JobId, ServiceJob] = field(default_factory=dict)
    #: Whether something changed that the scheduler of service jobs should look at.
    services_unsettled: bool = True
    #: When this daemon first looked at them, and when it last decided about them.
    services_watched_at: int = 0
    services_planned_at: int = 0
    #: By their kept names.
    models: dict[str, HostedModel] = field(default_factory=dict)
    endpoint_configs: dict[str, HostedConfig] = field(default_factory=dict)
    endpoints: dict[str, HostedEndpoint] = field(default_factory=dict)
    #: Whether something changed that deployments should look at.
    endpoints_unsettled: bool = True
    schedule_groups: dict[str, ScheduleGroup] = field(default_factory=dict)
    #: By `<group>/<name>`.
    schedules: dict[str, Schedule] = field(default_factory=dict)
    #: What was deleted lately by requests with a token, oldest first.
    deletions: dict[str, Deletion] = field(default_factory=dict)
    #: Ticks that are not closed, by schedule and due time, and when the calendar looks at what.
    ticks: dict[tuple[str, int], Tick] = field(default_factory=dict)
    calendar_index: CalendarIndex = field(default_factory=CalendarIndex)
    instances: dict[InstanceId, Instance] = field(default_factory=dict)
    machines: dict[MachineId, Machine] = field(default_factory=dict)
    #: Machines that went lately with their instance: what their agents still say is late.
    gone_machines: dict[MachineId, int] = field(default_factory=dict)
    #: Machines that instances are shares of: they stay when an instance goes.
    shared_machines: set[MachineId] = field(default_factory=set)
    #: Live jobs, arrays, and live children that have a record.
    jobs: dict[JobId, Job] = field(default_factory=dict)
    #: The children of live arrays.
    children: dict[JobId, ChildTable] = field(default_factory=dict)
    waits: dict[JobId, Waits] = field(default_factory=dict)
    #: Who waits for a job.
    dependents: dict[JobId, list[JobId]] = field(default_factory=dict)
    #: Jobs that finished lately, oldest first.
    finished: dict[JobId, RecentEnd] = field(default_factory=dict)
    #: The jobs whose attempts have a place.
    attempts: dict[AttemptToken, Job] = field(default_factory=dict)
    occupancy: Occupancy = field(default_factory=Occupancy)
    #: What the last snapshot said of each machine, for as long as nothing of it has changed.
    machine_views: dict[MachineId, MachineView] = field(default_factory=dict, compare=False)
    #: Who stands behind an attempt for its place.
    standbys: dict[AttemptToken, AttemptToken] = field(default_factory=dict)
    #: How long attempts of a queue and a definition take, in milliseconds; the later ones count more.
    lengths: dict[tuple[QueueName, str], float] = field(default_factory=dict)
    backlog: Backlog = field(default_factory=Backlog)
    #: (time, token) of attempts with a timeout; a heap.
    deadlines: list[tuple[int, AttemptToken]] = field(default_factory=list)
    last_order: int = 0
    #: The tenants that have a valid key; the first has the job user to itself where nothing else keeps them apart.
    tenants: tuple[str, ...] = ()
    #: The uids of tenants.
    job_users: UserBook = field(default_factory=UserBook)
    #: Whether something changed that the scheduler should look at.
    unsettled: bool = True
    #: When time-driven rules were last applied.
    ticked_at: int = 0
    #: Which job has a place reserved, where and until when, from the last plan.
    reservations: dict[JobId, tuple[InstanceId, int | None]] = field(default_factory=dict)
    #: Jobs that wait for a GPU with more memory than they had, until it is known whether there is one.
    outgrown: set[JobId] = field(default_factory=set)
    #: What engines could launch for each environment, as they said last.
    offers: Mapping[EnvironmentName, tuple[Offer, ...]] = field(default_factory=dict)
    #: The heads of queues that carry AWS's reason for being blocked, and when they were last looked at.
    blocked: dict[JobId, str] = field(default_factory=dict)
    heads_seen_at: int = 0
    #: When this daemon first looked at them.
    heads_watched_at: int = 0
    #: The types of instance that an environment could not have lately.
    failed_launches: dict[tuple[EnvironmentName, str], FailedLaunch] = field(default_factory=dict)
    #: Attempts that were asked to leave their place to a particular job.
    left_places: LeftPlaces = field(default_factory=LeftPlaces)
    #: (time, job) when a limit or budget of a job as a whole is due; a heap. What is not in `limit_due` is outdated.
    limits: list[tuple[int, JobId]] = field(default_factory=list)
    limit_due: dict[JobId, int] = field(default_factory=dict)
    #: (time, job) when a job with a deadline is looked at; a heap. What is not in `deadline_looks` is outdated.
    deadline_heap: list[tuple[int, JobId]] = field(default_factory=list)
    deadline_looks: dict[JobId, int] = field(default_factory=dict)
    spot_pools: dict[QueueName, SpotPool] = field(default_factory=dict)
    #: When the progress of an attempt was last written.
    progress_written: dict[AttemptToken, int] = field(default_factory=dict)
    #: How many launches this daemon has asked for: two in one millisecond need two ids.
    launches: int = 0
    purged_at: int = 0

    def next_order(self) -> int:
        """The next place in the FIFO order."""
        self.last_order += 1
        return self.last_order

    @property
    def first_tenant(self) -> str:
        """The tenant whose jobs run as the job user where tenants cannot be kept apart."""
        return self.tenants[0] if self.tenants else DEFAULT_TENANT

    @property
    def anybody_waits(self) -> bool:
        """Whether a job waits for a place or for another job."""
        return bool(self.dependents or any(self.backlog.queues.values()))

    def definition(self, key: str) -> JobDefinition | None:
        """A revision by `name:revision`, or the latest active one by name."""
        name, _, revision = key.partition(":")
        return _revision(self.definitions.get(name, {}), revision)

    def usable_definition(self, key: str) -> JobDefinition | None:
        """As `definition`; a tenant without a definition of that name can use one that administrators share."""
        name, _, revision = key.partition(":")
        if "/" not in name or self.definitions.get(name):
            return self.definition(key)
        revisions = self.definitions.get(given_name(name), {})
        return _revision({number: it for number, it in revisions.items() if it.shared}, revision)


def _revision(revisions: Mapping[int, JobDefinition], wanted: str) -> JobDefinition | None:
    if wanted:
        return revisions.get(int(wanted)) if wanted.isdecimal() else None
    active = [number for number, definition in revisions.items() if definition.active]
    return revisions[max(active)] if active else None
