"""ecsProperties: the newer way to write a job, as a task of containers, and what it means as containerProperties.

Decides which container of a task is the one that runs, and how a task reads on the wire. That container is then
checked and run as if it had been written as containerProperties. Must not know how jobs run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.documents import read_document, without
from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.control.ports import Store
from windfall.jobs.definitions import DEFAULT_CONTAINER, JobDefinition
from windfall.jobs.ids import DefinitionKey

CONTAINERS_MAX = 10
NOT_RUN = "Not run: of a task's containers Windfall runs the essential one alone"
#: What Batch's own container has of the same kind; the rest of a task is kept and returned.
_OF_THE_TASK = {
    "executionRoleArn": "executionRoleArn",
    "taskRoleArn": "jobRoleArn",
    "ephemeralStorage": "ephemeralStorage",
    "networkConfiguration": "networkConfiguration",
    "runtimePlatform": "runtimePlatform",
    "enableExecuteCommand": "enableExecuteCommand",
    "platformVersion": "platformVersion",
    "volumes": "volumes",
}
#: Lists that are returned whether they were sent or not, as Terraform expects it: others would be a change to it.
_LISTS_OF_A_CONTAINER = ("command", "dependsOn", "environment", "mountPoints", "secrets", "ulimits")
#: What the members of a container of Batch's own have no word for.
_OF_TASKS_ALONE = (
    "name",
    "essential",
    "dependsOn",
    "firelensConfiguration",
    "startTimeout",
    "stopTimeout",
    "platformVersion",
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}")

Sent = Mapping[str, Any]


def task_container(sent: Sent) -> dict[str, Any]:
    """The containerProperties that mean the same as a task, with the container's `name`."""
    task = _only(sent["taskProperties"])
    main = _checked_main(task)
    if task.get("networkMode"):
        raise client_exception("networkMode not applicable for EC2 and Fargate.")
    return _as_container(task, main)


def first_essential(sent: Sent | None) -> dict[str, Any]:
    """The same for an unchecked task: of its first essential container, or nothing."""
    for task in sent["taskProperties"] if sent else ():
        for container in task["containers"]:
            if container.get("essential", True):
                return _as_container(task, container)
    return {}


def _as_container(task: Sent, container: Sent) -> dict[str, Any]:
    return {**{ours: task[theirs] for theirs, ours in _OF_THE_TASK.items() if theirs in task}, **container}


def main_of(task: Sent) -> Mapping[str, Any]:
    """The container of a registered task that runs: its essential one."""
    containers: Sequence[Sent] = task["containers"]
    return next(container for container in containers if container.get("essential", True))


def name_of(container: Sent) -> str:
    """What a container is called, in log streams too."""
    return container.get("name") or DEFAULT_CONTAINER


def others_of(properties: Sent) -> list[Sent]:
    """The containers of registered ecsProperties beside the one that runs."""
    task = properties["taskProperties"][0]
    main = main_of(task)
    return [container for container in task["containers"] if container is not main]


def containers_not_run(properties: Sent) -> list[str]:
    """The names of the containers of registered ecsProperties that are not essential."""
    return [name_of(container) for container in others_of(properties)]


def _only(tasks: Sequence[Sent]) -> Sent:
    if len(tasks) != 1:
        raise client_exception(f"ecsProperties must have one element in taskProperties, got {len(tasks)}")
    return tasks[0]


def _checked_main(task: Sent) -> Sent:
    containers: Sequence[Sent] = task["containers"]
    if not 1 <= len(containers) <= CONTAINERS_MAX:
        raise client_exception(f"A task must have 1 to {CONTAINERS_MAX} containers, got {len(containers)}")
    names = [name_of(container) for container in containers]
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise client_exception(
                f"Container name {shown(name)!r} must have 1 to 255 letters, digits, hyphens and underscores"
            )
        if names.count(name) > 1:
            raise client_exception(f"Container name {name} is used more than once; give each its own name")
    essential = [container for container in containers if container.get("essential", True)]
    if not essential:
        raise client_exception("At least one container of a task must be essential")
    if len(essential) > 1:
        listed = ", ".join(name_of(container) for container in essential)
        raise client_exception(
            f"Windfall runs one container of a task, and {len(essential)} are essential ({listed}): declare those"
            ' that the job can do without as "essential": false, or put them into one image or jobs of their own.'
            " Nothing has been changed."
        )
    _check_order(essential[0], names)
    return essential[0]


def _check_order(main: Sent, names: Sequence[str]) -> None:
    """Refuse a container that waits for others: they would never come."""
    for entry in main.get("dependsOn", ()):
        other = entry.get("containerName") or ""
        if other not in names or other == name_of(main):
            raise client_exception(
                f"dependsOn names {shown(other)!r}, which is not another container of the task"
            )
        raise client_exception(
            f"Windfall runs the essential container of a task alone, and {name_of(main)} depends on {other}: do the"
            f" work of {other} in the same image, or in a job of its own that this one names in SubmitJob's dependsOn."
            " Nothing has been changed."
        )


# What a submission changes ----------------------------------------------------------------------------------------


def registration(store: Store, reference: str) -> Mapping[str, Any] | None:
    """The registration that a submission names by `name` or `name:revision`; None if there is none."""
    definition: JobDefinition | None
    if ":" in reference:
        definition = store.definition(DefinitionKey(reference))
    else:
        revisions = store.definitions(reference, active_only=True)
        definition = max(revisions, key=lambda definition: definition.revision, default=None)
    return None if definition is None else read_document(definition.document)


def container_overrides(sent: Sent, properties: Sent | None) -> dict[str, Any] | None:
    """The containerOverrides that mean the same for the container that runs, of registered ecsProperties."""
    tasks: Sequence[Sent] = sent.get("taskProperties", ())
    if not tasks:
        return None
    if len(tasks) > 1:
        raise client_exception(
            f"ecsPropertiesOverride must have one element in taskProperties, got {len(tasks)}"
        )
    if not properties:
        raise client_exception(
            "ecsPropertiesOverride is for a job definition with ecsProperties; this one has none there, so use"
            " containerOverrides"
        )
    task = properties["taskProperties"][0]
    names = [name_of(container) for container in task["containers"]]
    overrides: dict[str, Any] | None = None
    for entry in tasks[0].get("containers", ()):
        # One container needs no name to be meant.
        name = entry.get("name") or (names[0] if len(names) == 1 else "")
        if name not in names:
            raise client_exception(
                f"ecsPropertiesOverride names the container {shown(name)!r}; the job definition has {', '.join(names)}"
            )
        if name == name_of(main_of(task)):
            overrides = {member: value for member, value in entry.items() if member != "name"}
    return overrides


# What is shown ----------------------------------------------------------------------------------------------------


def only_container(properties: Sent) -> dict[str, Any] | None:
    """The containerProperties that mean the same as registered ecsProperties of one container; None for several."""
    task = properties["taskProperties"][0]
    if len(task["containers"]) > 1:
        return None
    return without(_as_container(task, main_of(task)), *_OF_TASKS_ALONE)


def registered_detail(properties: Sent) -> dict[str, Any]:
    """The ecsProperties of a JobDefinition: as sent, and with the lists that AWS adds."""
    return {
        **properties,
        "taskProperties": [
            {
                "volumes": [],
                **task,
                "containers": [_with_lists(container) for container in task["containers"]],
            }
            for task in properties["taskProperties"]
        ],
    }


def _with_lists(container: Sent) -> dict[str, Any]:
    return {**{member: [] for member in _LISTS_OF_A_CONTAINER}, **container}


def task_detail(properties: Sent, runs: Sent, latest: Sent | None) -> dict[str, Any]:
    """The ecsProperties of a job; `runs` is what it makes of its container, `latest` how its last attempt stands."""
    task = properties["taskProperties"][0]
    main, shown_containers = main_of(task), []
    for registered in task["containers"]:
        container = _with_lists(registered)
        if registered is main:
            container |= runs
            container |= _of_a_container(latest)
        elif latest is not None:
            container["reason"] = NOT_RUN
        shown_containers.append(container)
    return {"taskProperties": [{"volumes": [], **task, **_of_a_task(latest), "containers": shown_containers}]}


def attempt_tasks(properties: Sent, attempt: Sent) -> list[dict[str, Any]]:
    """The taskProperties of an attempt, from its container as Batch's own would be shown."""
    task = properties["taskProperties"][0]
    main = main_of(task)
    return [
        {
            **_of_a_task(attempt),
            "containers": [
                {
                    "name": name_of(container),
                    **(_of_a_container(attempt) if container is main else {"reason": NOT_RUN}),
                }
                for container in task["containers"]
            ],
        }
    ]


def _of_a_task(attempt: Sent | None) -> dict[str, Any]:
    return {} if attempt is None else {name: attempt[name] for name in ("containerInstanceArn", "taskArn")}


def _of_a_container(attempt: Sent | None) -> dict[str, Any]:
    members = ("exitCode", "reason", "logStreamName", "networkInterfaces")
    return {} if attempt is None else {name: attempt[name] for name in members}
