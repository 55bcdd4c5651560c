"""What is tried with a real Podman beside the tests marked `over_both`: where it differs, and one case of many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docker_engine import RunningEngine
from tests.unit.agent.container import test_running
from tests.unit.agent.container.house import ContainerHouse
from windfall.agent.container.keeper import OUT_OF_MEMORY
from windfall.agent.messages import Refused
from windfall.jobs.containers import Pull

pytestmark = pytest.mark.parametrize("engine", ["podman"], indirect=True)


def test_memory_is_a_hard_limit_whether_or_not_the_reason_is_known(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain("a", "tail", "/dev/zero", memory_mib=16, max_swap_mib=0))
    exited = daemon.exited("a")
    assert exited.exit_code == 137
    assert exited.isolation.startswith("container (podman ")
    assert exited.reason in (None, OUT_OF_MEMORY), "its runtime may not say why"


def test_the_command_meets_the_images_entrypoint(house: ContainerHouse, engine: RunningEngine):
    said = "new mine\n"
    test_running.test_entrypoint_and_command_meet_those_of_the_image(
        house, engine, ("sh", "-c", "echo new $0"), ("mine",), said
    )
    assert house.log("a") == said


def test_secrets_are_the_named_users_to_read(make_house: Callable[..., ContainerHouse], tmp_path: Path):
    test_running.test_secrets_are_variables_and_files_and_on_no_command_line(make_house, tmp_path, "worker")
    assert list(tmp_path.glob("house0/agent/containers/*")), "a keeper was there"


def test_an_image_that_cannot_be_had_is_a_pull_error(house: ContainerHouse):
    test_running.test_an_image_that_cannot_be_had_is_a_pull_error(
        house, Pull.MISSING, "Error response from daemon: "
    )
    assert isinstance(house.daemons[-1].result("a"), Refused)
