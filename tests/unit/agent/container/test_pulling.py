"""Images from a registry, by a real engine: when they are fetched, what is told meanwhile, who asks for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_engine import RunningEngine
from tests.unit.agent.container.house import ContainerHouse, over_both
from tests.unit.agent.container.registry_server import Registry, serving
from tests.waiting import wait_until
from windfall.agent.messages import Progressed, Refused, Stop
from windfall.jobs.containers import Pull


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as running:
        yield running


def test_a_missing_image_is_fetched_once_and_its_progress_is_told(house: ContainerHouse, registry: Registry):
    registry.go_on.clear()
    daemon = house.daemon()
    daemon.send(house.contain("a", "env", image=registry.image()))
    words = f"pulling image {registry.image()}: "
    told = daemon.until(lambda one: isinstance(one, Progressed) and (one.doing or "").startswith(words))
    assert isinstance(told, Progressed)
    assert told.doing is not None
    assert 0 < int(told.doing.removeprefix(words).removesuffix(" %")) < 100
    assert house.daemon(epoch=2).inventory.attempts[0].state == "starting"
    registry.go_on.set()
    assert house.daemons[-1].exited("a").exit_code == 0
    before = len(registry.asked)
    house.daemons[-1].send(house.contain("b", "env", image=registry.image()))
    assert house.daemons[-1].exited("b").exit_code == 0
    assert len(registry.asked) == before, "what is here is not asked for"


@over_both
def test_always_asks_the_registry_again(house: ContainerHouse, registry: Registry):
    daemon = house.daemon()
    daemon.send(house.contain("a", "env", image=registry.image()))
    daemon.exited("a")
    before = len(registry.asked)
    daemon.send(house.contain("b", "env", image=registry.image(), pull=Pull.ALWAYS))
    assert daemon.exited("b").exit_code == 0
    assert len(registry.asked) > before


def test_an_image_is_had_by_its_digest(house: ContainerHouse, registry: Registry):
    daemon = house.daemon()
    image = registry.image(f"@{registry.digest}")
    daemon.send(house.contain("a", "env", image=image, pull=Pull.ALWAYS))
    assert daemon.exited("a").exit_code == 0
    assert not any(path.endswith("/manifests/1") for path in registry.asked), "its tag is nobody's business"


def test_a_stop_ends_a_pull(house: ContainerHouse, registry: Registry, engine: RunningEngine):
    registry.go_on.clear()
    daemon = house.daemon()
    daemon.send(house.contain("a", "env", image=registry.image()))
    wait_until(
        lambda: any("/blobs/" in path for path in registry.asked), "the registry is asked for the image"
    )
    daemon.send(Stop("a", 0.0))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert result.reason == "CannotStartContainerError: stopped before it was started"
    assert not engine.has(house.name("a"))


@pytest.mark.parametrize("known", [True, False])
def test_a_registry_that_wants_a_password_gets_the_one_of_docker_login(
    tmp_path: Path, engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, known: bool
):
    password = base64.b64encode(b"me:secret").decode()
    with serving(f"Basic {password}") as registry:
        configuration = {"auths": {f"127.0.0.1:{registry.port}": {"auth": password}} if known else {}}
        (tmp_path / "config.json").write_text(json.dumps(configuration))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        root = tmp_path / "house"
        root.mkdir()
        house = ContainerHouse(root, container_socket=str(engine.socket), sample_every_s=0.0)
        house.launch()
        try:
            daemon = house.daemon()
            daemon.send(house.contain("a", "env", image=registry.image(), pull=Pull.ALWAYS))
            if known:
                assert daemon.exited("a").exit_code == 0
            else:
                result = daemon.result("a")
                assert isinstance(result, Refused)
                assert result.reason.startswith("CannotPullContainerError: Error response from daemon: ")
        finally:
            house.close()
