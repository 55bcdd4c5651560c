"""The container engine as the doctor sees it: none, one, one without GPUs, and a real one."""

from __future__ import annotations

import pytest

from tests.unit.agent.checkup.hosts import DEBIAN, MadeHost
from windfall.agent.checkup.engine import check_engine
from windfall.agent.checkup.host import Ran, ThisHost
from windfall.agent.checkup.verdicts import State
from windfall.agent.container.finding import EngineFacts


def facts(**changes):
    known = {"socket": "/run/docker.sock", "api": "1.41", "kind": "docker", "version": "28.2", "cpus": 8.0}
    return EngineFacts(**{**known, **changes})


def verdicts(found, said, host=None, *, has_gpus=True):
    return list(
        check_engine(
            host or MadeHost(files={"/etc/os-release": DEBIAN}),
            None,
            has_gpus=has_gpus,
            find=lambda _: found,
            facts=lambda _: said,
        )
    )


def test_without_an_engine_jobs_are_processes_and_it_says_how_to_have_one():
    (verdict,) = verdicts(None, {})
    assert verdict.state is State.DOUBTFUL
    assert "docker.sock" in verdict.seen
    assert "apt-get install -y docker.io" in verdict.mend


@pytest.mark.parametrize(
    ("program", "is_root", "mend"),
    [
        ("dockerd", True, "sudo systemctl enable --now docker"),
        ("podman", True, "systemctl enable --now podman.socket"),
        ("podman", False, "systemctl --user enable --now podman.socket"),
    ],
)
def test_an_engine_that_is_installed_is_started_and_not_installed_again(program, is_root, mend):
    host = MadeHost(programs={program: Ran(0, "28.2")}, is_root=is_root)
    (verdict,) = verdicts(None, {}, host)
    assert verdict.mend.startswith(mend + ":")


@pytest.mark.parametrize(
    ("changes", "said", "programs", "expected"),
    [
        ({"gpus_by_cdi": True}, {}, {}, State.GOOD),
        ({"gpus_by_cdi": False}, {"Runtimes": {"runc": {}, "nvidia": {}}}, {}, State.GOOD),
        ({"gpus_by_cdi": False}, {"Runtimes": {"runc": {}}}, {}, State.DOUBTFUL),
        ({"gpus_by_cdi": False}, {}, {"nvidia-ctk": Ran(0, "1.17")}, State.DOUBTFUL),
    ],
)
def test_gpus_need_cdi_or_nvidias_runtime(changes, said, programs, expected):
    host = MadeHost(files={"/etc/os-release": DEBIAN}, programs=programs)
    engine, gpus = verdicts(facts(**changes), {"Driver": "overlay2", **said}, host)
    assert (engine.state, gpus.state) == (State.GOOD, expected)
    assert expected is State.GOOD or "nvidia-ctk runtime configure" in gpus.mend


def test_a_slow_storage_driver_is_told():
    (verdict,) = verdicts(facts(), {"Driver": "vfs"}, has_gpus=False)
    assert verdict.state is State.DOUBTFUL
    assert "overlay2" in verdict.mend


def test_a_real_engine_is_seen(docker_engine):
    seen = list(check_engine(ThisHost(), str(docker_engine.socket), has_gpus=False))
    assert len(seen) == 1
    assert "docker" in seen[0].seen
    assert seen[0].state is State.DOUBTFUL  # the tests' own engine uses vfs
