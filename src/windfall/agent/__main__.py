"""`python -m windfall.agent`: reads the command line and becomes the warden, which runs the agent."""

from __future__ import annotations

import argparse
import os

from windfall.agent.launching import agent_environment, prepare_directories, warden_command
from windfall.agent.settings import AgentSettings


def parse_arguments(arguments: list[str] | None = None) -> AgentSettings:
    """Turn a command line into settings."""
    parser = argparse.ArgumentParser(
        prog="python -m windfall.agent", description="Run attempts on this machine."
    )
    parser.add_argument(
        "--directory", required=True, help="socket, journal and lock; only the agent's user may enter"
    )
    parser.add_argument("--attempts", required=True, help="where private working directories are made")
    parser.add_argument(
        "--job-user",
        default="nobody",
        help="the user that jobs run as when the agent is root (default nobody)",
    )
    parser.add_argument("--gpus", default="auto", help="auto, none or simulated:N")
    parser.add_argument("--vcpus", type=float, help="default: all that the machine has")
    parser.add_argument("--memory-mib", type=int, help="default: all that the machine has")
    parser.add_argument(
        "--hide", action="append", default=[], help="a directory that sandboxed jobs must not see"
    )
    parser.add_argument("--soft-cpu-limit", action="store_true", help="set no CPU quota")
    parser.add_argument(
        "--no-cgroups", action="store_true", help="do not use cgroups even where they can be written"
    )
    parser.add_argument("--no-sandbox", action="store_true", help="do not use bubblewrap even where it works")
    parser.add_argument("--objects-file", help="JSON of variables that open object storage")
    parser.add_argument(
        "--link-local-metadata", action="store_true", help="serve instance metadata at 169.254.169.254 too"
    )
    parser.add_argument(
        "--container-socket", help="of Docker or Podman (default: where they usually are), or none"
    )
    given = parser.parse_args(arguments)
    return AgentSettings(
        directory=os.path.abspath(given.directory),
        attempts_directory=os.path.abspath(given.attempts),
        job_user=given.job_user,
        gpus=given.gpus,
        vcpus=given.vcpus,
        memory_mib=given.memory_mib,
        hide=tuple(os.path.abspath(path) for path in given.hide),
        hard_cpu_limit=not given.soft_cpu_limit,
        use_cgroups=not given.no_cgroups,
        use_sandbox=not given.no_sandbox,
        objects_file=os.path.abspath(given.objects_file) if given.objects_file else None,
        link_local_metadata=given.link_local_metadata,
        container_socket=given.container_socket,
    )


def main() -> None:
    """Become the warden."""
    settings = parse_arguments()
    prepare_directories(settings)
    command = warden_command(settings)
    os.execve(command[0], command, agent_environment())  # noqa: S606 - our own command, no shell wanted


if __name__ == "__main__":
    main()
