"""From dimensions to a job and its metrics, and back.

A host of a training job is known by `Host=<name>/algo-<n>`, every job by its `JobId`, a GPU of a job by its `index`
beside that.
Decides dimensions; must not know values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from windfall.aws_api.cloudwatch.kinds import GPU_METRICS, JOB_METRICS, TRAINING, GpuMetric, JobMetric
from windfall.aws_api.sagemaker.cluster import host_name
from windfall.aws_api.sagemaker.names import job_ids as training_ids
from windfall.control.ports import JobFilter, Store
from windfall.jobs.ids import JobId, node_id
from windfall.jobs.job import Job, JobKind
from windfall.jobs.tenants import View

HOST, JOB, INDEX = "Host", "JobId", "index"
_HOST = re.compile(r"(.+)/algo-([1-9][0-9]{0,3})")
Dimensions = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Named:
    """One metric of one job."""

    kind: JobMetric | GpuMetric
    job: Job
    #: For a metric of one GPU.
    index: int | None = None

    @property
    def dimensions(self) -> dict[str, str]:
        """What tells it from others of its name."""
        if self.kind.namespace == TRAINING:
            return {HOST: f"{self.job.submission.name}/{host_name(self.job.node or 0)}"}
        own = {JOB: str(self.job.id)}
        return own if self.index is None else {**own, INDEX: str(self.index)}


def metrics_of(job: Job) -> list[Named]:
    """All metrics that a job has, those of its GPUs one by one."""
    training = job.submission.kind is JobKind.TRAINING
    metrics = [Named(kind, job) for kind in JOB_METRICS if training or kind.namespace != TRAINING]
    gpus = max((len(attempt.gpu_ids) for attempt in job.attempts), default=0)
    return metrics + [Named(kind, job, index) for kind in GPU_METRICS for index in range(gpus)]


def find(store: Store, view: View, namespace: str, name: str, dimensions: Dimensions) -> Named | None:
    """The metric of exactly these dimensions; None if there is none."""
    for job in store.jobs(_job_ids(view, dimensions)):
        for metric in metrics_of(job):
            kind = metric.kind
            if (kind.namespace, kind.name) == (namespace, name) and metric.dimensions == dict(dimensions):
                return metric
    return None


def _job_ids(view: View, dimensions: Dimensions) -> list[JobId]:
    """The jobs that may be meant."""
    if JOB in dimensions:
        return [JobId(dimensions[JOB])]
    host = _HOST.fullmatch(dimensions.get(HOST, ""))
    if host is None:
        return []
    number = int(host[2]) - 1
    # The first host has no job of its own.
    return [
        training_id if number == 0 else node_id(training_id, number)
        for training_id in training_ids(view, host[1])
    ]


def walk(store: Store, most_jobs: int) -> list[Named]:
    """The metrics of the newest jobs that ever ran."""
    page = store.list_jobs(JobFilter(), most_jobs, None)
    jobs = [
        host_job for job in page.jobs for host_job in (job, *_other_hosts(store, job)) if host_job.attempts
    ]
    return [metric for job in jobs for metric in metrics_of(job)]


def _other_hosts(store: Store, job: Job) -> list[Job]:
    """The nodes of a multi-node job that have records of their own."""
    nodes = job.submission.nodes
    return [] if nodes is None else store.jobs([node_id(job.id, number) for number in nodes.others])
