"""A real Podman for tests: its service with a socket, images and containers of its own below one directory.

The fixture `podman_engine` of tests/conftest.py starts one for all tests of a worker, with the image that Docker's
has (tests/docker_engine.py).
"""

from __future__ import annotations

import os
import shutil

from tests.conftest import require_part
from tests.docker_engine import RunningEngine

#: Its own limits are more files and processes than some machines let even root have. Its locks are files: those in
#: shared memory would be shared with every other Podman of the machine.
_CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
lock_type = "file"
"""
#: As Docker does without being told.
_REGISTRIES_CONF = """
[[registry]]
location = "127.0.0.1"
insecure = true
"""


class RunningPodman(RunningEngine):
    """A `podman system service` that answers."""

    kind = "podman"

    def program(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that serves the socket, and the variables that it needs."""
        containers, registries = self.directory / "containers.conf", self.directory / "registries.conf"
        containers.write_text(_CONTAINERS_CONF)
        registries.write_text(_REGISTRIES_CONF)
        command = [*self._podman(), "system", "service", "--time", "0", f"unix://{self.socket}"]
        return command, {"CONTAINERS_CONF": str(containers), "CONTAINERS_REGISTRIES_CONF": str(registries)}

    def sweeping(self) -> list[str]:
        """Return the command that ends its containers: they live on without a service."""
        command = [*self._podman(), "rm", "--all", "--force", "--time", "0", "--volumes"]
        return ["env", f"CONTAINERS_CONF={self.directory}/containers.conf", *command]

    def _podman(self) -> list[str]:
        place = self.directory
        command = ["podman", "--root", f"{place}/data", "--runroot", f"{place}/run"]
        # Not crun: it does not bear both generations of cgroups mounted at once.
        command += ["--tmpdir", f"{place}/tmp", "--storage-driver", "vfs", "--runtime", "runc"]
        return [*command, "--cgroup-manager", "cgroupfs", "--events-backend", "file"]


def require_podman() -> None:
    """Skip where a real Podman cannot be started; in CI that is a failure."""
    require_part(os.geteuid() == 0, "these tests of Podman need root")
    for program, package in (("podman", "podman"), ("runc", "runc"), ("busybox", "busybox-static")):
        require_part(shutil.which(program) is not None, f"{program} is not installed (Debian: {package})")
