"""SubmitJob: from a request to the core's command, checked in itself.

This is the hot path: nothing is copied or encoded that need not be. Must not know queues, definitions or
other jobs: the core looks them up. Only dependencies that have left memory are looked up here, because the
core cannot.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import check_job_name, definition_reference, job_reference, queue_name
from windfall.aws_api.batch.children import child_at_rest, final_states
from windfall.aws_api.batch.consumable_resources import required_tokens
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.documents import EMPTY, write_document
from windfall.aws_api.batch.ecs_properties import container_overrides, registration
from windfall.aws_api.batch.job_fields import (
    amounts,
    environment_variables,
    retry_strategy,
    scheduling_priority,
    timeout_s,
)
from windfall.aws_api.batch.nodes import node_overrides
from windfall.aws_api.batch.rejections import client_exception, does_not_exist, refuse_unsupported, shown
from windfall.aws_api.batch.tags import check_tags
from windfall.aws_api.protocol.service import Call
from windfall.control.events import FinishedJob, SubmitJob
from windfall.control.origins import TickOrigin, attributed
from windfall.control.ports import Store
from windfall.jobs.arrays import ARRAY_SIZE_MAX, ARRAY_SIZE_MIN
from windfall.jobs.definitions import ContainerOverrides
from windfall.jobs.dependencies import DEPENDENCIES_MAX, Dependency, DependencyType
from windfall.jobs.ids import JobId, split_child, split_node
from windfall.jobs.states import FAILED

JOB_SIZE_MAX = 30 * 1024

_NOTHING: Mapping[str, str] = {}


async def submit_job(context: BatchContext, call: Call) -> dict[str, Any]:
    """SubmitJob."""
    params = call.params
    if call.size >= JOB_SIZE_MAX:
        raise client_exception(f"Job size must be less than 30 KiB, got {-(-call.size // 1024)} KiB")
    refuse_unsupported("SubmitJob", params)
    name = check_job_name(params["jobName"])
    array_size = _array_size(params.get("arrayProperties"))
    depends_on = _dependencies(params.get("dependsOn"), array_size)
    definition = definition_reference(params["jobDefinition"])
    registered = await _registered(context, definition, params)
    overrides, document = _overrides(_container_overrides(params, registered), quarters=True)
    tags, tokens = params.get("tags"), params.get("consumableResourcePropertiesOverride")
    job_id = call.origin.run_id if isinstance(call.origin, TickOrigin) else JobId(context.new_id())
    command = SubmitJob(
        job_id=job_id,
        name=name,
        queue=queue_name(params["jobQueue"]),
        definition=definition,
        array_size=array_size,
        depends_on=depends_on,
        overrides=overrides,
        parameters=params.get("parameters", _NOTHING),
        retry=retry_strategy(params.get("retryStrategy")),
        timeout_s=timeout_s(params.get("timeout")),
        tags=check_tags(tags) if tags else _NOTHING,
        propagate_tags=params.get("propagateTags"),
        submitter=call.caller.submitter,
        document=document,
        finished=await _finished(context, depends_on) if depends_on else (),
        share=params.get("shareIdentifier") or None,
        priority=scheduling_priority(params.get("schedulingPriorityOverride"), "schedulingPriorityOverride"),
        # As on AWS the list takes the place of the definition's as a whole.
        consumables=required_tokens(tokens) if tokens else None,
        node_overrides=node_overrides(params.get("nodeOverrides"), registered, _overrides),
    )
    await context.execute(attributed(command, call.origin))
    return {"jobArn": context.arns(call).job(job_id), "jobName": name, "jobId": job_id}


def _array_size(sent: Mapping[str, Any] | None) -> int | None:
    size: int | None = sent.get("size") if sent else None
    if size is not None and not ARRAY_SIZE_MIN <= size <= ARRAY_SIZE_MAX:
        raise client_exception(
            f"Array size must be between {ARRAY_SIZE_MIN} and {ARRAY_SIZE_MAX}, got {size}"
        )
    return size


def _dependencies(sent: Sequence[Mapping[str, str]] | None, array_size: int | None) -> tuple[Dependency, ...]:
    if not sent:
        return ()
    if len(sent) > DEPENDENCIES_MAX:
        raise client_exception(f"Job cannot have more than {DEPENDENCIES_MAX} dependencies")
    return tuple(_dependency(entry, array_size) for entry in sent)


def _dependency(sent: Mapping[str, str], array_size: int | None) -> Dependency:
    kind = DependencyType(sent["type"]) if "type" in sent else None
    reference = sent.get("jobId")
    # AWS takes SEQUENTIAL beside a jobId from any job, and what is meant is to wait for that job.
    named = kind is DependencyType.SEQUENTIAL and reference
    if kind is not None and array_size is None and not named:
        raise client_exception(f"A dependency of type {kind} can only be used by an array job")
    if not reference:
        if kind is DependencyType.SEQUENTIAL:
            return Dependency(None, kind)
        raise client_exception("A dependency must have a jobId, unless its type is SEQUENTIAL")
    job_id = job_reference(reference)
    if job_id is None or split_node(job_id)[1] is not None:
        raise client_exception(f"Dependency {shown(reference)} is not the id of a job")
    if kind is DependencyType.N_TO_N and split_child(job_id)[1] is not None:
        raise client_exception("A dependency of type N_TO_N must name an array job, not one of its children")
    return Dependency(job_id, kind)


def _overrides(
    sent: Mapping[str, Any] | None, *, quarters: bool = False
) -> tuple[ContainerOverrides | None, str]:
    """What the job changes in its definition, and what is kept of it for the wire alone.

    Whether it may have a part of a vCPU, the core knows: its definition says whether it is for Fargate.
    """
    if not sent:
        return None, EMPTY
    requested = amounts(sent, quarters=quarters)
    command = sent.get("command")
    overrides = ContainerOverrides(
        # As on AWS an empty list leaves the definition's command as it is.
        command=tuple(command) if command else None,
        environment=environment_variables(sent.get("environment", ())),
        vcpus=requested.vcpus,
        memory_mib=requested.memory_mib,
        gpus=requested.gpus,
    )
    instance_type = sent.get("instanceType")
    return overrides, EMPTY if instance_type is None else write_document({"instanceType": instance_type})


async def _registered(context: BatchContext, definition: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The registration whose containers the request names, if it does; a definition that is not there has none."""
    nodes = (params.get("nodeOverrides") or _NOTHING).get("nodePropertyOverrides", ())
    if not params.get("ecsPropertiesOverride") and not any(
        "ecsPropertiesOverride" in node_override for node_override in nodes
    ):
        return _NOTHING
    registered = await context.read(lambda store: registration(store, definition))
    if registered is None:
        raise does_not_exist(f"Job definition {definition}")
    return registered


def _container_overrides(
    params: Mapping[str, Any], registered: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    sent: Mapping[str, Any] | None = params.get("containerOverrides")
    task = params.get("ecsPropertiesOverride")
    if not task:
        return sent
    if sent:
        raise client_exception("Give either containerOverrides or ecsPropertiesOverride, not both")
    return container_overrides(task, registered.get("ecsProperties"))


async def _finished(context: BatchContext, depends_on: tuple[Dependency, ...]) -> tuple[FinishedJob, ...]:
    """Those dependencies that the store knows as finished."""
    wanted = list(dict.fromkeys(entry.job_id for entry in depends_on if entry.job_id is not None))
    by_child = {entry.job_id for entry in depends_on if entry.type is DependencyType.N_TO_N}
    return await context.read(lambda store: _finished_among(store, wanted, by_child)) if wanted else ()


def _finished_among(
    store: Store, wanted: list[JobId], by_child: Container[JobId | None]
) -> tuple[FinishedJob, ...]:
    parents = {split_child(job_id)[0] for job_id in wanted}
    jobs_by_id = {job.id: job for job in store.jobs([*wanted, *parents.difference(wanted)])}
    finished = []
    for job_id in wanted:
        parent_id, index = split_child(job_id)
        job = jobs_by_id.get(job_id)
        if job is None and index is not None and parent_id in jobs_by_id:
            # A child that never had a record ended, or waits, with the rest of its array.
            job = child_at_rest(jobs_by_id[parent_id], index)
        if job is None or not job.finished:
            continue
        children = None
        if job_id in by_child and job.is_array and job.state is FAILED:
            children = final_states(job, store.ended_children(job_id))
            if children is None:
                continue  # it is being removed, and as good as gone
        size = job.submission.array_size if job.is_array else None
        finished.append(FinishedJob(job_id, job.state, size, children))
    return tuple(finished)
