"""Where engines are looked for, how they are called, and the small readings around images and users."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest

from windfall.agent.container.engine import Engine, negotiated, quoted, split_image
from windfall.agent.container.finding import (
    EngineFinder,
    cdi_names_nvidia,
    describe,
    find_engine,
    usual_places,
)
from windfall.agent.container.keeper import percentage, start_ticks
from windfall.agent.container.ownership import first_file, hand_over, user_of
from windfall.agent.container.registry import configuration_path, registry_headers, registry_of

DOCKER = {"Version": "20.10.24+dfsg1", "Components": [{"Name": "Engine"}]}
PODMAN = {"Version": "5.2.2", "Components": [{"Name": "Podman Engine"}]}


def described(version: dict[str, Any], facts: dict[str, Any], hook: bool = False, cdi: bool = False):
    return describe("/s", "1.41", version, facts, ["bridge"], hook, cdi)


def test_engines_are_looked_for_where_the_user_says_then_where_they_usually_are():
    environment = {"DOCKER_HOST": "unix:///mine", "XDG_RUNTIME_DIR": "/run/user/7"}
    assert list(usual_places(environment)) == [
        "/mine",
        "/run/user/7/docker.sock",
        "/run/user/7/podman/podman.sock",
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
    ]
    assert "tcp" not in "".join(usual_places({"DOCKER_HOST": "tcp://far:2375"}))


def test_what_is_no_engine_is_not_one(tmp_path: Path):
    assert find_engine("none", {"DOCKER_HOST": "unix:///var/run/docker.sock"}) is None
    assert find_engine(str(tmp_path), {}) is None
    path = str(tmp_path / "dead")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        assert find_engine(f"unix://{path}", {}) is None
        assert EngineFinder(path, {}).look() is None


def test_who_it_is():
    docker = described(DOCKER, {"NCPU": 4, "CgroupVersion": "2"})
    assert (docker.words, docker.cpus, docker.cgroup_version) == ("docker 20.10.24", 4.0, "2")
    podman = described(PODMAN, {"CgroupVersion": "v2"})
    assert (podman.words, podman.cgroup_version) == ("podman 5.2.2", "2")
    assert not describe("/s", "1.41", DOCKER, {}, ["none", "host"], False, False).has_bridge
    assert describe("/s", "1.41", PODMAN, {}, ["podman"], False, False).has_bridge


def test_gpus_come_from_nvidias_hook_where_it_is_else_by_cdi():
    knows = {"CDISpecDirs": ["/etc/cdi"]}
    assert not described(DOCKER, knows, hook=True, cdi=True).gpus_by_cdi
    assert not described(DOCKER, {**knows, "Runtimes": {"nvidia": {}}}, cdi=True).gpus_by_cdi
    assert described(DOCKER, knows, cdi=True).gpus_by_cdi
    assert not described(DOCKER, {}, cdi=True).gpus_by_cdi, "an engine before CDI"
    assert described(PODMAN, {}).gpus_by_cdi


@pytest.mark.parametrize(
    ("version", "gives"),
    [
        (DOCKER, True),
        (PODMAN, False),
        ({**PODMAN, "Version": "5.4.0"}, True),
        ({**PODMAN, "Version": "6.0"}, True),
    ],
)
def test_podman_gives_gpus_from_a_version_on(version: dict[str, Any], gives: bool):
    assert described(version, {}).gives_gpus == gives


def test_a_description_of_gpus_is_known_by_its_name(tmp_path: Path):
    assert not cdi_names_nvidia([str(tmp_path), "/nowhere"])
    (tmp_path / "vendor.yaml").touch()
    assert not cdi_names_nvidia([str(tmp_path)])
    (tmp_path / "nvidia.yaml").touch()
    assert cdi_names_nvidia([str(tmp_path)])


@pytest.mark.parametrize(
    ("newest", "oldest", "spoken"),
    [("1.41", "1.12", "1.41"), ("1.52", "1.44", "1.44"), ("1.60", "1.50", "1.50"), ("", "", "1.44")],
)
def test_the_api_is_the_newest_that_both_know(newest: str, oldest: str, spoken: str):
    assert negotiated(newest, oldest) == spoken


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("busybox", ("busybox", "latest")),
        ("busybox:1.36", ("busybox", "1.36")),
        ("localhost:5000/a/b", ("localhost:5000/a/b", "latest")),
        ("localhost:5000/a/b:c", ("localhost:5000/a/b", "c")),
        ("a@sha256:abc", ("a@sha256:abc", "")),
    ],
)
def test_an_image_is_taken_apart(image: str, parts: tuple[str, str]):
    assert split_image(image) == parts


def test_addresses_are_quoted():
    assert quoted("a/b:c@d e&ä") == "a/b%3Ac%40d%20e%26%C3%A4"


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("busybox", ""),
        ("team/app", ""),
        ("ghcr.io/a/b:1", "ghcr.io"),
        ("localhost/a", "localhost"),
        ("h:5/a", "h:5"),
    ],
)
def test_whose_image_it_is(image: str, registry: str):
    assert registry_of(image) == registry


def test_a_password_goes_to_its_own_registry_alone(tmp_path: Path):
    path = tmp_path / "config.json"
    auth = base64.b64encode(b"me:pass:word").decode()
    path.write_text(json.dumps({"auths": {"ghcr.io": {"auth": auth}, "odd.io": {}}}))
    header = registry_headers("ghcr.io/a/b", str(path))["X-Registry-Auth"]
    said = json.loads(base64.urlsafe_b64decode(header))
    assert said == {"username": "me", "password": "pass:word", "serveraddress": "ghcr.io"}
    assert registry_headers("evil.io/a/b", str(path)) == {}
    assert registry_headers("odd.io/a", str(path)) == {}
    assert registry_headers("busybox", str(tmp_path / "none")) == {}
    assert configuration_path({"HOME": "/h"}) == "/h/.docker/config.json"
    assert configuration_path({"HOME": "/h", "DOCKER_CONFIG": "/c"}) == "/c/config.json"


class FakeEngine(Engine):
    """An engine whose one container has these files."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__("/nowhere")
        self._files = files

    def copy_out(self, container: str, path: str) -> bytes | None:
        """As the engine packs a file."""
        if path not in self._files:
            return None
        content = self._files[path].encode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo(path.rpartition("/")[2])
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        return packed.getvalue()


@pytest.mark.parametrize(
    ("user", "owner"),
    [
        ("", (0, 0)),
        ("root", (0, 0)),
        ("0", (0, 0)),
        ("7:8", (7, 8)),
        ("7", (7, 0)),
        ("100", (100, 200)),
        ("app", (100, 200)),
        ("app:9", (100, 9)),
        ("app:staff", (100, 50)),
        ("7:staff", (7, 50)),
        ("nobody-knows", (0, 0)),
    ],
)
def test_who_a_containers_user_is(user: str, owner: tuple[int, int]):
    files = {
        "/etc/passwd": "root:x:0:0::/:\napp:x:100:200::/:\n",
        "/etc/group": "staff:x:50:\nother:x:51:a,b\n",
    }
    assert user_of(FakeEngine(files), "c", user) == owner
    if user in ("7", "nobody-knows"):
        assert user_of(FakeEngine({}), "c", user) == owner, "an image without any such file"


def test_no_archive_is_an_empty_file():
    assert first_file(b"") == b""


def test_handing_over_leaves_what_is_ours_alone(tmp_path: Path, require):
    require(os.geteuid() == 0, "only root gives files away")
    for name in ("a", ".windfall", ".windfall/progress", ".windfall/held"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "link").symlink_to("/etc/passwd")
    (tmp_path / ".windfall" / "notice.json").touch()
    before = Path("/etc/passwd").stat().st_uid
    hand_over(str(tmp_path), ".windfall", [".windfall/progress"], (1234, 2345))
    owners = {str(path.relative_to(tmp_path)): path.lstat().st_uid for path in tmp_path.rglob("*")}
    assert owners == {
        "a": 1234,
        "a/link": 1234,
        ".windfall": 0,
        ".windfall/progress": 1234,
        ".windfall/held": 0,
        ".windfall/notice.json": 0,
    }
    assert (tmp_path / ".windfall").stat().st_gid == 2345
    assert Path("/etc/passwd").stat().st_uid == before


def test_how_much_of_an_image_has_come():
    assert percentage({}) == ""
    assert percentage({"a": (50, 100), "b": (0, 100)}) == ": 25 %"


def test_a_process_is_known_by_its_start():
    assert start_ticks(os.getpid()) is not None
    assert start_ticks(None) is None


def test_facts_of_another_kind_are_passed_over():
    strange = {"NCPU": "many", "Runtimes": 7, "CDISpecDirs": 1}
    found = described({"Version": None, "Components": "x"}, strange)
    assert (found.kind, found.cpus > 0) == ("docker", True)
