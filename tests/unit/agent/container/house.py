"""One agent with its directories, and what a test asks of it when attempts are containers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_agent import House
from tests.docker_engine import IMAGE
from windfall.agent.container.orders import container_name, short_name
from windfall.agent.messages import Start, Stop
from windfall.jobs.containers import ContainerOptions, ContainerRun

#: A test that has this mark is run with both engines; the others have Docker.
over_both = pytest.mark.parametrize("engine", ["docker", "podman"], indirect=True)


class ContainerHouse(House):
    """As for processes, and what concerns containers."""

    def contain(self, token: str, *command: str, image: str = IMAGE, **fields: Any) -> Start:
        """A container with this command; fields of ContainerOptions may be given beside those of Start."""
        known = ContainerOptions.__dataclass_fields__
        options = {name: fields.pop(name) for name in list(fields) if name in known}
        # No engine of a test has a bridge.
        options.setdefault("network", "host")
        entrypoint = fields.pop("entrypoint", None)
        run = ContainerRun(image, entrypoint, command, ContainerOptions(**options))
        values: dict[str, Any] = {"memory_mib": 64, **fields}
        return self.start(token, container=run, **values)

    def contain_shell(self, token: str, script: str, **fields: Any) -> Start:
        """A container with a shell's script."""
        return self.contain(token, "sh", "-c", script, **fields)

    def stop_now(self, token: str, grace_s: float = 0.0) -> None:
        """Have an attempt stopped."""
        self.daemons[-1].send(Stop(token, grace_s))

    def name(self, token: str) -> str:
        """What the attempt's container is called."""
        return container_name(self.settings.agent_id, token)

    def keeper_directory(self, token: str) -> Path:
        """Where the keeper's files are."""
        return self.root / "agent" / "containers" / short_name(token)

    def state(self, token: str) -> dict[str, Any]:
        """What the keeper has written down."""
        path = self.keeper_directory(token) / "state"
        return json.loads(path.read_text()) if path.exists() else {}
