"""What a container engine is asked for, and where engines differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windfall.agent.container.finding import EngineFacts
from windfall.agent.container.request import Wanted, create_body, isolation_words, network_of
from windfall.jobs.containers import ContainerOptions, ContainerRun, Device, Mount, Tmpfs, Ulimit

DOCKER = EngineFacts("/d.sock", "1.41", "docker", "20.10.24", 8.0)
PODMAN = EngineFacts("/p.sock", "1.41", "podman", "5.2", 8.0, cgroup_version="2", gpus_by_cdi=True)


def body(engine: EngineFacts = DOCKER, *, run: ContainerRun | None = None, **fields: Any) -> dict[str, Any]:
    known = ContainerOptions.__dataclass_fields__
    options = ContainerOptions(**{name: fields.pop(name) for name in list(fields) if name in known})
    run = run or ContainerRun("image:1", None, ("train",), options)
    values: dict[str, Any] = {"environment": {}, "vcpus": 2.0, "memory_mib": 512, **fields}
    return create_body(engine, Wanted("t#1", "task", "agent", run, **values))


def host(engine: EngineFacts = DOCKER, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = body(engine, **fields)["HostConfig"]
    return found


def test_the_image_keeps_what_a_job_does_not_name():
    plain = body(run=ContainerRun("image:1", None, ()))
    assert plain["Image"] == "image:1"
    assert not {"Entrypoint", "Cmd", "User", "WorkingDir", "Hostname"} & set(plain)
    named = body(
        run=ContainerRun("image:1", ("a", "b"), ("c",), ContainerOptions(user="1:2")), work="/workspace"
    )
    assert (named["Entrypoint"], named["Cmd"]) == (["a", "b"], ["c"])
    assert (named["User"], named["WorkingDir"]) == ("1:2", "/workspace")
    assert body(run=ContainerRun("i", (), ("c",)))["Entrypoint"] == [""], "how Docker is told: none at all"


def test_every_container_says_whose_it_is():
    assert body()["Labels"] == {
        "windfall.agent": "agent",
        "windfall.attempt": "t#1",
        "windfall.task": "task",
    }


def test_memory_and_swap_as_ecs_has_them():
    mib = 1 << 20
    assert host()["Memory"] == 512 * mib
    assert "MemorySwap" not in host()
    assert host(max_swap_mib=0)["MemorySwap"] == 512 * mib
    assert host(max_swap_mib=100, swappiness=30)["MemorySwap"] == 612 * mib
    assert host(max_swap_mib=100, swappiness=30)["MemorySwappiness"] == 30
    assert "MemorySwappiness" not in host(swappiness=30), "it means nothing without a size"
    assert "MemorySwappiness" not in host(PODMAN, max_swap_mib=100, swappiness=30), "cgroup v2 has none"
    assert host(memory_mib=4)["Memory"] == 6 * mib, "Docker takes no less"


def test_vcpus_are_a_limit_or_a_weight():
    assert (host()["NanoCpus"], host()["CpuShares"]) == (2_000_000_000, 2048)
    assert "NanoCpus" not in host(hard_cpu_limit=False)
    assert "NanoCpus" not in host(vcpus=9.0), "more than there are is an error to the engine"


def test_mounts_tmpfs_and_ulimits():
    asked = host(
        mounts=(
            Mount("/a", "/b"),
            Mount("/c", "/d", read_only=True),
            Mount(None, "/fresh"),
            Mount("/e:f", "/g"),
        ),
        tmpfs=(Tmpfs("/t", 64, ("noexec", "mode=1777")),),
        ulimits=(Ulimit("nofile", 1, 2),),
        shared_memory_mib=128,
        binds=(("/host/ml", "/opt/ml"),),
    )
    assert asked["Binds"] == ["/host/ml:/opt/ml", "/a:/b", "/c:/d:ro"]
    assert asked["Mounts"] == [
        {"Target": "/fresh", "ReadOnly": False, "Type": "volume"},
        {"Target": "/g", "ReadOnly": False, "Type": "bind", "Source": "/e:f"},
    ]
    assert asked["Tmpfs"] == {"/t": "size=64m,noexec,mode=1777"}
    assert asked["Ulimits"] == [{"Name": "nofile", "Soft": 1, "Hard": 2}]
    assert asked["ShmSize"] == 128 << 20


def test_gpus_are_asked_for_by_id_and_never_by_device_node():
    asked = host(
        gpu_ids=["GPU-a", "MIG-b"],
        devices=(Device("/dev/nvidia0", "/dev/nvidia0"), Device("/dev/fuse", "/f")),
    )
    assert asked["DeviceRequests"] == [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-a", "MIG-b"], "Capabilities": [["gpu"]]}
    ]
    assert asked["Devices"] == [
        {"PathOnHost": "/dev/fuse", "PathInContainer": "/f", "CgroupPermissions": "rwm"}
    ]
    assert "DeviceRequests" not in host()


@pytest.mark.parametrize("engine", [PODMAN, msgspec.structs.replace(DOCKER, gpus_by_cdi=True)])
def test_gpus_are_asked_for_by_cdis_names_where_the_engine_has_those(engine: EngineFacts):
    asked = host(engine, gpu_ids=["GPU-a", "MIG-b"])
    assert asked["DeviceRequests"] == [
        {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=MIG-b"]}
    ]


def test_the_log_is_where_it_can_be_read_from_its_beginning():
    assert host()["LogConfig"]["Type"] == "json-file"
    assert host()["LogConfig"]["Config"]["max-file"] == "1"
    assert host(PODMAN)["LogConfig"] == {"Type": "k8s-file", "Config": {}}


def test_the_network_is_the_jobs_wish_or_one_of_its_own_or_the_hosts():
    no_bridge = msgspec.structs.replace(DOCKER, has_bridge=False)
    plain, named = ContainerOptions(), ContainerOptions(network="none")
    assert network_of(DOCKER, plain, wants_host=False) == "bridge"
    assert network_of(DOCKER, plain, wants_host=True) == "host"
    assert network_of(no_bridge, plain, wants_host=False) == "host"
    assert network_of(no_bridge, named, wants_host=True) == "none"
    assert isolation_words(DOCKER, "bridge", plain) == "container (docker 20.10.24)"
    assert isolation_words(DOCKER, "host", plain) == "container (docker 20.10.24, host network)"
    words = isolation_words(no_bridge, "host", ContainerOptions(privileged=True))
    assert words == "container (docker 20.10.24, host network: the engine has no bridge, privileged)"


def test_the_server_of_a_model_is_found_at_a_port_of_the_host():
    served = body(
        publishes=20001, environment={"WINDFALL_SERVE_ADDRESS": "10.0.0.7"}, wants_host_network=True
    )
    assert served["HostConfig"]["NetworkMode"] == "bridge", "two of them would want the same port of the host"
    assert served["ExposedPorts"] == {"8080/tcp": {}}
    assert served["HostConfig"]["PortBindings"] == {"8080/tcp": [{"HostIp": "10.0.0.7", "HostPort": "20001"}]}
    assert host(publishes=20001)["PortBindings"]["8080/tcp"][0]["HostIp"] == "127.0.0.1"
    no_bridge = msgspec.structs.replace(DOCKER, has_bridge=False)
    assert "PortBindings" not in host(no_bridge, publishes=20001), "it listens there itself"


def test_nobody_listens_to_the_hosts_network():
    assert host(network="host")["CapDrop"] == ["NET_RAW"]
    assert "CapDrop" not in host(network="bridge")
    assert "CapDrop" not in host(network="host", privileged=True)


def test_the_training_host_has_its_name():
    alone = body(hosts=[("algo-1", "127.0.0.1")], network="bridge")
    assert alone["Hostname"] == "algo-1"
    assert alone["HostConfig"]["ExtraHosts"] == ["algo-1:127.0.0.1"]
    shared = body(hosts=[("algo-1", "127.0.0.1")], wants_host_network=True)
    assert "Hostname" not in shared, "the host keeps its own"
    assert shared["HostConfig"]["ExtraHosts"] == ["algo-1:127.0.0.1"]


def test_every_host_of_several_knows_all_names():
    hosts = [("algo-1", "127.64.0.1"), ("algo-2", "127.64.0.2")]
    several = body(hosts=hosts, wants_host_network=True)
    assert several["HostConfig"]["NetworkMode"] == "host"
    assert several["HostConfig"]["ExtraHosts"] == ["algo-1:127.64.0.1", "algo-2:127.64.0.2"]


def test_secrets_are_seen_as_files_that_cannot_be_written():
    assert host(secrets_directory="/private/s")["Binds"] == ["/private/s:/run/secrets:ro"]


def test_no_variable_of_a_job_opens_the_host():
    asked = host(environment={"CUDA_MPS_PIPE_DIRECTORY": "/etc", "WINDFALL_CHECKPOINT_DIR": "/root"})
    assert asked["Binds"] == []
    assert not {"IpcMode", "PidMode", "Mounts"} & set(asked)
