"""`python -m windfall.agent.checkup SETTINGS_JSON`: the doctor of a host without the command line, as JSON."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator

import msgspec

from windfall.agent.checkup.clock import check_clock
from windfall.agent.checkup.engine import check_engine
from windfall.agent.checkup.gpu_driver import check_driver
from windfall.agent.checkup.host import ThisHost
from windfall.agent.checkup.isolation import check_isolation
from windfall.agent.checkup.programs import check_git
from windfall.agent.checkup.room import check_room
from windfall.agent.checkup.sessions import check_sessions
from windfall.agent.checkup.verdicts import Verdict
from windfall.agent.gpus import find_gpus
from windfall.agent.network import find_network_mbits
from windfall.agent.settings import AgentSettings


def main() -> None:
    """Check this machine for an agent with these settings."""
    settings = msgspec.json.decode(sys.argv[1], type=AgentSettings)
    gpus = find_gpus(settings.gpus)
    told = {
        "checks": list(_examine(settings, has_gpus=bool(gpus))),
        "gpus": [{"name": gpu.name, "memory_mib": gpu.memory_mib or 0} for gpu in gpus],
        "network_mbits": find_network_mbits(),
    }
    sys.stdout.buffer.write(msgspec.json.encode(told))


def _examine(settings: AgentSettings, *, has_gpus: bool) -> Iterator[Verdict]:
    host = ThisHost()
    yield from check_driver(host, find_gpus("auto"))
    yield from check_engine(host, settings.container_socket, has_gpus=has_gpus)
    yield from check_isolation(host, settings.job_user)
    yield from check_room(host, settings.directory)
    yield check_clock(host)
    yield check_git(host)
    yield check_sessions(host, pwd.getpwuid(os.getuid()).pw_name)


if __name__ == "__main__":
    main()
