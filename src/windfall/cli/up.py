"""`windfall up`: reads the settings, starts the daemon in the foreground and says what it offers.

stdout gets exactly one line, when requests are served; everything else goes to stderr. Must not know how the
daemon works.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import socket
import sys
import time
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windfall.cli.errors import BadUsage
from windfall.cli.notes import fitted
from windfall.cli.wording import counted, gpu_name, memory
from windfall.daemon.errors import DaemonError
from windfall.daemon.job_users import uids_for_tenants
from windfall.daemon.settings import Settings, read_settings

if TYPE_CHECKING:
    from windfall.capacity.machines import Machine
    from windfall.daemon.serving import Ready


@click.command()
@click.option("--host", help="Address to listen on (127.0.0.1). Any other than loopback lets others in.")
@click.option("--port", type=int, help="Port to listen on (8470); 0 takes a free one.")
@click.option("--data", type=click.Path(path_type=Path), help="Directory of keys, state and logs.")
@click.option("--vcpus", type=int, help="vCPUs to offer to jobs (all of this machine).")
@click.option("--memory-mib", type=int, help="Memory to offer to jobs, in MiB (all of this machine).")
@click.option("--gpus", metavar="auto|none|simulated:N|recorded:PATH", help="GPUs to offer (auto).")
@click.option("--runtime", metavar="auto|process|container", help="What jobs run as (auto).")
@click.option("--container-socket", metavar="PATH", help="Socket of the Docker or Podman engine (found).")
@click.option("--sample-every-s", type=float, help="Seconds between samples of running jobs (2); 0 for none.")
@click.option(
    "--job-log-limit", metavar="SIZE", help="What the log of an attempt may have (10g); none for all of it."
)
@click.option("--store", metavar="URL", help="sqlite:///PATH or postgresql://... (a file under --data).")
@click.option(
    "--lease-s",
    type=float,
    help="On PostgreSQL: seconds until another daemon leads for one that is gone (5).",
)
@click.option(
    "--hosts-only",
    is_flag=True,
    default=None,
    help="Run no job on this host itself, only on added hosts or Ray.",
)
@click.option(
    "--forget-directories",
    is_flag=True,
    default=None,
    help="Begin without other directories of a PostgreSQL.",
)
@click.option("--advertise", metavar="URL", help="http://HOST:PORT where other daemons reach this one.")
@click.option("--job-user", metavar="USER", help="User that jobs run as when the daemon is root (nobody).")
@click.option(
    "--job-users",
    metavar="FIRST-LAST",
    help="Uids when the daemon is root, one for each tenant; none for no such users.",
)
@click.option("--account-id", metavar="ID", help="Account id in ARNs (123456789012).")
@click.option("--region", help="Region that `windfall env` tells clients (us-east-1).")
@click.option("--retention-days", type=float, help="Days that finished jobs stay visible (7).")
@click.option(
    "--reserve-after-s", type=float, help="Seconds until an overtaken job gets a place reserved (60)."
)
@click.option("--idle-after-s", type=float, help="Seconds until an idle instance goes away (300).")
@click.option("--stop-grace-s", type=float, help="Seconds between SIGTERM and SIGKILL (30).")
@click.option("--objects", metavar="URI", help="Where checkpoints go: file:///PATH or s3://BUCKET/PREFIX.")
@click.option("--s3", is_flag=True, default=None, help="Start a real S3 server beside the daemon.")
@click.option("--s3-port", type=int, help="Port of that S3 server (8471); 0 takes a free one.")
@click.option("--usher-port", type=int, help="Port for the requests of endpoints (8472); 0 takes a free one.")
@click.option(
    "--s3-listen", metavar="ADDRESS", help="Let jobs on other machines reach it at this address; unencrypted."
)
@click.option("--notice-s", type=float, help="Seconds of notice before a job's place is taken back (120).")
@click.option(
    "--engine", metavar="NAME", help="What environments run on: local, simulated, hosts or ray (local)."
)
@click.option(
    "--ray", metavar="COMMAND", help="How a Ray cluster is reached: local, or a command as 'ssh HEAD'."
)
@click.option("--ray-python", metavar="PROGRAM", help="The Python of that cluster (python3).")
@click.option(
    "--ray-trusts-network", is_flag=True, default=None, help="Accept a Ray cluster that asks for no token."
)
@click.option("--usd-gpu-hour", type=float, help="What an hour of one of your GPUs costs, in US dollars.")
@click.option("--usd-vcpu-hour", type=float, help="The same for a vCPU of a job without GPUs.")
def up(**options: Any) -> int:
    """Start the daemon in the foreground.

    It prints `windfall is listening on http://HOST:PORT` when it is ready. Every option can also be set as
    WINDFALL_<OPTION> in the environment, or in windfall.toml in the data directory. Ctrl-C, SIGTERM and
    `windfall down` stop it; jobs that run go on, and the next daemon adopts them.
    """
    try:
        settings = read_settings(options)
        gc.disable()  # Collections, which find nothing yet, would be a seventh of the time that loading takes.
        from windfall.daemon.serving import serve

        gc.enable()
        named = options["data"] is not None or "WINDFALL_DATA" in os.environ
        # Taken away: what the daemon starts must not tell systemd anything in its name.
        supervisor = os.environ.pop("NOTIFY_SOCKET", None)
        log_with_times()

        def is_ready(ready: Ready) -> None:
            announce(settings, ready, named_directory=named)
            tell_supervisor(supervisor)

        return serve(settings, is_ready)
    except DaemonError as error:
        raise BadUsage(str(error)) from None


def log_with_times() -> None:
    """Let each line of the daemon's log begin with its time in UTC, unless systemd's journal adds its own."""
    import logging

    status = os.fstat(sys.stderr.fileno())
    in_journal = os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    form = logging.Formatter("%(message)s" if in_journal else "%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    logging.getLogger().addHandler(handler)


def tell_supervisor(address: str | None) -> None:
    """Let systemd know that requests are served, where it started the daemon and asked for that."""
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letter:
        letter.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)


def announce(settings: Settings, ready: Ready, *, named_directory: bool) -> None:
    """Say what the daemon offers, then that it listens; `env` must name its directory if `up` did."""
    facts = {} if ready.machine is None else ready.machine.facts
    lines = [f"data directory  {settings.data}"]
    if settings.shares_store:
        lines.append(f"leads           {'yes' if ready.leader == ready.url else f'no, {ready.leader} does'}")
    if ready.machine is not None:
        lines += [
            f"offers          {_offer(ready.machine)}",
            f"isolation       {_isolation(settings, facts)}",
            f"containers      {facts.get('containers') or _no_engine(settings)}",
        ]
    lines.append(f"checkpoints     {settings.objects_url}" + (f", at {ready.s3_url}" if ready.s3_url else ""))
    if ready.live_jobs:
        lines.append(f"adopted         {counted(ready.live_jobs, 'unfinished job')} of an earlier run")
    warnings = [line for line in facts.get("warnings", "").splitlines() if line] + own_warnings(settings)
    lines += [f"warning: {line}" for line in warnings]
    if warnings:
        lines.append("`windfall doctor` says more about this host, and what to do")
    where = f" --data {shlex.quote(str(settings.data))}" if named_directory else ""
    lines.append(f"run a job, in another shell: windfall run{where} -- CMD")
    lines.append(f'for AWS clients, in another shell: eval "$(windfall env{where})"')
    click.echo(fitted("\n".join(lines)), err=True)
    click.echo(f"windfall is listening on {ready.url}")


def own_warnings(settings: Settings) -> list[str]:
    """What is likely to go wrong with where the daemon listens and where it writes, each with what to do."""
    from windfall.agent.checkup.room import LEAST_DISK_BYTES

    warnings = []
    if not _is_loopback(settings.host):
        warnings.append(
            f"requests to {settings.host} are signed but not encrypted: others on the network can read them, with logs"
            " and jobs' environments; listen on 127.0.0.1 behind a TLS proxy, as docs/operations.md shows"
        )
    if settings.hosts_only and settings.objects_url.startswith("file://"):
        warnings.append(
            f"hosts do not reach {settings.objects_url}: jobs with code, checkpoints or files to keep wait until you"
            " name an S3 with --objects s3://BUCKET"
        )
    try:
        room = os.statvfs(settings.data)
    except OSError:
        return warnings
    free_bytes = room.f_bavail * room.f_frsize
    if free_bytes < LEAST_DISK_BYTES:
        warnings.append(
            f"only {free_bytes >> 20:,} MiB are free for {settings.data}, and a full disk stops everything: free at"
            f" least {LEAST_DISK_BYTES >> 20:,} MiB, or choose another disk with --data DIR"
        )
    return warnings


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _no_engine(settings: Settings) -> str:
    if settings.container_socket == "none":
        return "not looked for, jobs are processes"
    where = f" at {settings.container_socket}" if settings.container_socket else ""
    if settings.runtime == "container":
        return f"no engine answers{where}, and jobs are to be containers: they fail until one does"
    return f"no engine answers{where}, jobs are processes"


def _offer(machine: Machine) -> str:
    total, gpus = machine.total, machine.gpus
    offer = f"{counted(total.vcpus, 'vCPU')}, {memory(total.memory_mib)} of memory, "
    if not gpus:
        return offer + "no GPUs"
    kinds: dict[str, int] = {}
    for gpu in gpus:
        kind = gpu_name(gpu.name, simulated=gpu.simulated)
        kinds[kind] = kinds.get(kind, 0) + 1
    return offer + ", ".join(f"{count} × {kind}" for kind, count in kinds.items())


def _isolation(settings: Settings, facts: Mapping[str, str]) -> str:
    uids, job_user = uids_for_tenants(settings.job_users), facts.get("job_user", "")
    users = job_user if uids is None else uids.words(job_user)
    return (facts.get("isolation") or "none") + (f", jobs run as {users}" if users else "")
