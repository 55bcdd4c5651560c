"""`windfall status`: the daemon, its machine, and what runs and waits on it; `windfall queues`: the job queues."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import connect
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import ago, amount, counted, duration, gpu_name, memory

#: A maxvCpus that no machine has was given to mean all of it.
NO_LIMIT_VCPUS = 1_000_000

Answer = dict[str, Any]


@click.command()
@data_option
@json_option
def status(data: Path | None, as_json: bool) -> None:
    """Show what the daemon has, what it runs and what waits."""
    client = connect(data)
    answer = client.own("Status")
    if as_json:
        print_json(answer)
        return
    from windfall.cli.tables import heading, print_fields, print_table

    machine = answer.get("machine") or {}
    now = time.time_ns() // 1_000_000
    print_fields(
        [
            ("windfall", f"{answer['version']} at {client.endpoint.url}, pid {answer['pid']}"),
            ("started", ago(answer["startedAt"], now)),
            ("data", f"{answer['data']} ({answer['store']})"),
            *_daemon_fields(answer.get("daemons", [])),
            ("serves", f"{', '.join(answer['services'])}; region {answer['region']}"),
            *_machine_fields(machine),
            ("waiting", counted(answer["waiting"], "job")),
        ]
    )
    if any(not each["own"] for each in answer.get("machines", [])):
        heading("Machines")
        print_table(*_machine_table(answer["machines"]))
    if machine.get("gpus"):
        heading("GPUs")
        print_table(*_gpu_table(machine["gpus"]))
    if answer["environments"]:
        heading("Compute environments")
        print_table(*_environment_table(answer["environments"]))
    instances = [
        {**instance, "environment": environment["name"]}
        for environment in answer["environments"]
        for instance in environment["instanceList"]
    ]
    if instances:
        heading("Instances")
        print_table(*_instance_table(instances, now))
    if answer["queues"]:
        from windfall.cli.status import queue_table

        heading("Job queues")
        print_table(*queue_table(answer["queues"]))
    for warning in answer["warnings"]:
        note(f"warning: {warning}")


def _daemon_fields(daemons: list[Answer]) -> list[tuple[str, str]]:
    """Who leads and who follows, where several daemons share the store."""
    said = [(daemon["leads"], f"{daemon['url']}, pid {daemon['pid']}") for daemon in daemons]
    return [
        *(("leads", text) for leads, text in said if leads),
        *(("follows", text) for leads, text in said if not leads),
    ]


def _machine_fields(machine: Answer) -> list[tuple[str, str]]:
    if not machine:
        return [("machine", "its agent is not connected")]
    gpus, users = machine["gpus"], machine.get("jobUsers") or machine["jobUser"]
    in_use = sum(1 for gpu in gpus if gpu["heldBy"])
    sick = sum(1 for gpu in gpus if gpu["fence"] is not None)
    fenced = f", {sick} fenced: see `windfall gpus`" if sick else ""
    return [
        ("vCPUs", f"{amount(machine['usedVcpus'])} of {amount(machine['vcpus'])} in use"),
        ("memory", f"{memory(machine['usedMemoryMib'])} of {memory(machine['memoryMib'])} in use"),
        ("GPUs", f"{in_use} of {len(gpus)} in use{fenced}" if gpus else "none"),
        (
            "isolation",
            machine["isolation"] + (f", jobs run as {users}" if users else ""),
        ),
    ]


def _machine_table(machines: list[Answer]) -> tuple[Any, Any]:
    from windfall.cli.tables import Column

    rows = [
        [
            each["name"] + (" (this host)" if each["own"] else ""),
            f"{amount(each['usedVcpus'])} of {amount(each['vcpus'])}",
            f"{memory(each['usedMemoryMib'])} of {memory(each['memoryMib'])}",
            f"{amount(each['usedGpus'])} of {amount(each['gpus'])}" if each["gpus"] else "none",
            each["labels"],
            each["closed"] or "ready",
        ]
        for each in machines
    ]
    columns = [
        Column("MACHINE", shrinks=True),
        Column("VCPUS", right=True),
        Column("MEMORY", right=True, optional=1),
        Column("GPUS", right=True),
        Column("LABELS", shrinks=True, optional=2),
        Column("STANDING", folds=True),
    ]
    return columns, rows


def _gpu_table(gpus: list[Answer]) -> tuple[Any, Any]:
    from windfall.cli.tables import Column, has_room, shown_ids

    holders = iter(shown_ids([gpu["heldBy"] for gpu in gpus if gpu["heldBy"]], room=has_room()))
    columns = [
        Column("GPU", shrinks=True),
        Column("NAME", shrinks=True),
        Column("MEMORY", right=True, optional=True),
        Column("HEALTH", optional=True),
    ]
    rows = [
        [
            gpu["id"],
            gpu_name(gpu["name"], simulated=gpu["simulated"]),
            memory(gpu["memoryMib"]),
            gpu["health"],
            next(holders) if gpu["heldBy"] else "free",
        ]
        for gpu in gpus
    ]
    return [*columns, Column("HELD BY")], rows


def _environment_table(environments: list[Answer]) -> tuple[Any, Any]:
    from windfall.cli.tables import Column, state

    columns = [
        Column("NAME", shrinks=True),
        Column("STATE"),
        Column("MIN VCPUS", right=True, optional=True),
        Column("MAX VCPUS", right=True),
        Column("INSTANCES", right=True),
        Column("RUNNING", right=True),
    ]
    rows = [
        [
            environment["name"],
            state(environment["state"]),
            f"{environment['minvCpus']:,}",
            "no limit" if environment["maxvCpus"] >= NO_LIMIT_VCPUS else f"{environment['maxvCpus']:,}",
            f"{environment['instances']:,}",
            f"{environment['runningJobs']:,}",
        ]
        for environment in environments
    ]
    return columns, rows


def _instance_table(instances: list[Answer], now: int) -> tuple[Any, Any]:
    from windfall.cli.tables import Column, state

    columns = [
        Column("INSTANCE"),
        Column("TYPE"),
        Column("STATE"),
        Column("ENVIRONMENT", shrinks=True),
        Column("VCPUS", right=True),
        Column("GPUS", right=True),
        Column("$/H", right=True, optional=True),
        Column("RUNNING", right=True),
    ]
    rows = [
        [
            instance["id"],
            instance["type"],
            state(
                instance["state"]
                if instance["reclaimAt"] is None
                else f"gone in {_left(instance['reclaimAt'], now)}"
            ),
            instance["environment"],
            amount(instance["vcpus"]),
            f"{instance['gpus']:,}",
            "" if instance["usdHour"] is None else f"{instance['usdHour']:.3f}",
            f"{instance['runningJobs']:,}",
        ]
        for instance in instances
    ]
    return columns, rows


def _left(at: int, now: int) -> str:
    return duration(max(0, at - now))


@click.command()
@data_option
@json_option
def queues(data: Path | None, as_json: bool) -> None:
    """List job queues with their jobs by state."""
    all_queues = connect(data).own("Status")["queues"]
    if as_json:
        print_json({"queues": all_queues})
        return
    if not all_queues:
        click.echo("windfall: there is no queue yet; `windfall run -- CMD` makes one", err=True)
        return
    from windfall.cli.tables import print_table

    print_table(*queue_table(all_queues))


def queue_table(queues: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Columns and rows: jobs that wait, run, and have ended either way."""
    from windfall.cli.tables import Column, state

    columns = [
        Column("NAME", shrinks=True),
        Column("STATE"),
        Column("PRIORITY", right=True, optional=True),
        Column("WAITING", right=True),
        Column("RUNNING", right=True),
        Column("SUCCEEDED", right=True),
        Column("FAILED", right=True),
    ]
    rows = []
    for queue in queues:
        counts = queue.get("counts") or {}
        waiting, running = ("SUBMITTED", "PENDING", "RUNNABLE"), ("SCHEDULED", "STARTING", "RUNNING")
        groups = (waiting, running, ("SUCCEEDED",), ("FAILED",))
        numbers = [f"{sum(counts.get(name, 0) for name in group):,}" for group in groups]
        rows.append([queue["name"], state(queue["state"]), str(queue["priority"]), *numbers])
    return columns, rows
