"""containerProperties about the container itself: what they mean to the core, what is refused, who may ask for them."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.batch.test_definitions import container, fargate, refused, register
from windfall.aws_api.batch.container_options import container_options, not_applied
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.jobs.containers import ContainerOptions, Device, Mount, Secret, Tmpfs, Ulimit

EVERYTHING = {
    "user": "app",
    "privileged": True,
    "readonlyRootFilesystem": True,
    "ulimits": [
        {"name": "nofile", "softLimit": 1024, "hardLimit": 4096},
        {"name": "memlock", "softLimit": -1, "hardLimit": -1},
    ],
    "volumes": [
        {"name": "data", "host": {"sourcePath": "/srv/data/"}},
        {"name": "scratch", "host": {}},
        {"name": "more"},
    ],
    "mountPoints": [
        {"sourceVolume": "data", "containerPath": "/data", "readOnly": True},
        {"sourceVolume": "scratch", "containerPath": "/scratch"},
    ],
    "linuxParameters": {
        "initProcessEnabled": True,
        "sharedMemorySize": 64,
        "tmpfs": [{"containerPath": "/run", "size": 16, "mountOptions": ["noexec", "mode=1777"]}],
        "devices": [
            {"hostPath": "/dev/fuse", "permissions": ["READ", "WRITE"]},
            {"hostPath": "/dev/kvm", "containerPath": "/dev/other"},
            {"hostPath": "/dev/nvidia0"},
        ],
        "maxSwap": 128,
        "swappiness": 10,
    },
    "secrets": [{"name": "TOKEN", "valueFrom": "token"}],
}


def options(**changes) -> ContainerOptions:
    return container_options(changes, {}, fargate=False)


def linux(**changes) -> dict:
    return {"linuxParameters": changes}


def test_everything_reaches_the_core_and_comes_back_as_it_was_sent(world):
    sent = container(**EVERYTHING)
    register(world, containerProperties=sent)
    spec = world.last.definition.container
    assert spec.shared_memory_mib == 64
    assert spec.options == ContainerOptions(
        user="app",
        privileged=True,
        read_only_root=True,
        init=True,
        ulimits=(Ulimit("nofile", 1024, 4096), Ulimit("memlock", -1, -1)),
        mounts=(Mount("/srv/data", "/data", read_only=True), Mount(None, "/scratch")),
        tmpfs=(Tmpfs("/run", 16, ("noexec", "mode=1777")),),
        # A GPU is asked for as one: a fixed device file would reach past what the job was given.
        devices=(Device("/dev/fuse", "/dev/fuse", "rw"), Device("/dev/kvm", "/dev/other")),
        secrets=(Secret("TOKEN", "token"),),
        max_swap_mib=128,
        swappiness=10,
    )
    (described,) = world.client().describe_job_definitions()["jobDefinitions"]
    shown = described["containerProperties"]
    assert {name: shown[name] for name in EVERYTHING} == EVERYTHING


def test_a_definition_that_says_nothing_leaves_everything_to_the_image():
    assert options() == ContainerOptions()
    assert options(user="", ulimits=[], volumes=[], secrets=[], privileged=False) == ContainerOptions()


def test_every_mount_option_of_a_tmpfs_that_aws_lists_is_taken():
    documented = (
        "defaults ro rw suid nosuid dev nodev exec noexec sync async dirsync remount mand nomand atime noatime"
        " diratime nodiratime bind rbind unbindable runbindable private rprivate shared rshared slave rslave"
        " relatime norelatime strictatime nostrictatime mode uid gid nr_inodes nr_blocks mpol"
    )
    tmpfs = {"containerPath": "/t", "size": 1, "mountOptions": documented.split(" ")}
    assert options(**linux(tmpfs=[tmpfs])).tmpfs[0].options == tuple(documented.split(" "))


def test_swappiness_means_nothing_without_swap():
    assert options(**linux(swappiness=10)) == ContainerOptions()
    assert options(**linux(maxSwap=0)).max_swap_mib == 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"user": "Root"}, "User 'Root' does not match regex"),
        ({"ulimits": [{"name": "files", "softLimit": 1, "hardLimit": 1}]}, "Ulimit 'files' is not valid"),
        ({"ulimits": [{"name": "cpu", "softLimit": 2, "hardLimit": 1}]}, "at most its hardLimit (1)"),
        ({"ulimits": [{"name": "cpu", "softLimit": -1, "hardLimit": 1}]}, "at most its hardLimit (1)"),
        (
            {"ulimits": [{"name": "cpu", "softLimit": 1, "hardLimit": 1}] * 2},
            "cpu is provided more than once",
        ),
        ({"volumes": [{"name": "a b"}]}, "Volume name 'a b' must have 1 to 255 letters"),
        ({"volumes": [{}]}, "Volume name '' must have 1 to 255 letters"),
        ({"volumes": [{"name": "a"}, {"name": "a"}]}, "Volume a is provided more than once"),
        ({"volumes": [{"name": "a", "host": {"sourcePath": "data"}}]}, "must be an absolute path"),
        ({"volumes": [{"name": "a", "host": {"sourcePath": "/a/../b"}}]}, "must be an absolute path"),
        (
            {"volumes": [{"name": "a", "efsVolumeConfiguration": {"fileSystemId": "fs-1"}}]},
            "name its directory in host.sourcePath",
        ),
        ({"mountPoints": [{"sourceVolume": "b", "containerPath": "/b"}]}, "Unknown volume 'b'"),
        ({"mountPoints": [{"containerPath": "/b"}]}, "Unknown volume ''"),
        (
            {"volumes": [{"name": "a"}], "mountPoints": [{"sourceVolume": "a", "containerPath": "b"}]},
            "containerPath of volume a must be an absolute path",
        ),
        (
            {"volumes": [{"name": "a"}], "mountPoints": [{"sourceVolume": "a"}]},
            "containerPath of volume a must be an absolute path",
        ),
        (
            {"volumes": [{"name": "a"}], "mountPoints": [{"sourceVolume": "a", "containerPath": "//"}]},
            "must not be /",
        ),
        (
            {"volumes": [{"name": "a"}], "mountPoints": [{"sourceVolume": "a", "containerPath": "/x"}] * 2},
            "containerPath /x is used more than once",
        ),
        (linux(tmpfs=[{"containerPath": "/t", "size": 0}]), "must be at least 1 MiB, got 0"),
        (linux(tmpfs=[{"containerPath": "t", "size": 1}]), "containerPath of tmpfs must be an absolute path"),
        (
            linux(tmpfs=[{"containerPath": "/t", "size": 1, "mountOptions": ["size=9g"]}]),
            "'size=9g' of tmpfs /t",
        ),
        (
            linux(tmpfs=[{"containerPath": "/t", "size": 1, "mountOptions": ["mode=1,suid"]}]),
            "'mode=1,suid' of tmpfs /t",
        ),
        (linux(devices=[{"hostPath": "fuse"}]), "hostPath of a device must be an absolute path"),
        (linux(maxSwap=-1), "maxSwap must be at least 0, got -1"),
        (linux(swappiness=101, maxSwap=1), "swappiness must be between 0 and 100, got 101"),
        (linux(sharedMemorySize=0), "sharedMemorySize must be at least 1 MiB, got 0"),
        ({"secrets": [{"name": "A=B", "valueFrom": "x"}]}, "'A=B' cannot be an environment variable"),
        ({"secrets": [{"name": "AWS_BATCH_X", "valueFrom": "x"}]}, "cannot be an environment variable"),
        ({"secrets": [{"name": "A", "valueFrom": "x"}] * 2}, "The secret name must be unique"),
        (
            {
                "secrets": [{"name": "A", "valueFrom": "x"}],
                "environment": [{"name": "A", "value": "1"}],
            },
            "not shared with any new or existing environment variables set on the container, such as 'A'",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(world, changes, text):
    assert text in refused(world, containerProperties=container(**changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (linux(tmpfs=[{"containerPath": "/t", "size": 1}]), "tmpfs not applicable for Fargate."),
        (linux(devices=[{"hostPath": "/dev/fuse"}]), "devices not applicable for Fargate."),
        (linux(sharedMemorySize=64), "sharedMemorySize not applicable for Fargate."),
        (
            {"volumes": [{"name": "a", "host": {"sourcePath": "/a"}}]},
            "host volume not applicable for Fargate.",
        ),
    ],
)
def test_what_fargate_has_not_is_refused_there(world, changes, text):
    assert text in refused(world, platformCapabilities=["FARGATE"], containerProperties=fargate(**changes))


HOST_ACCESS = [
    {"privileged": True},
    {"volumes": [{"name": "a", "host": {"sourcePath": "/"}}], "mountPoints": []}
    | {"mountPoints": [{"sourceVolume": "a", "containerPath": "/host", "readOnly": True}]},
    linux(devices=[{"hostPath": "/dev/sda"}]),
]


@pytest.mark.parametrize("changes", HOST_ACCESS)
def test_what_opens_the_host_takes_an_admin_key(world, changes):
    world.role = Role.SUBMIT
    with pytest.raises(ApiError) as denied:
        register(world, containerProperties=container(**changes))
    assert denied.value.code == "AccessDeniedException"
    assert "Ask an admin to register it" in denied.value.message
    assert not world.gate.commands
    world.role = Role.ADMIN
    assert register(world, containerProperties=container(**changes))["revision"] == 1


def test_a_client_sees_the_denial_as_aws_has_it(world):
    world.role = Role.SUBMIT
    with pytest.raises(ClientError) as denied:
        world.client().register_job_definition(
            jobDefinitionName="d", type="container", containerProperties=container(privileged=True)
        )
    assert denied.value.response["Error"]["Code"] == "AccessDeniedException"
    assert denied.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "root", "readonlyRootFilesystem": True},
        {"volumes": [{"name": "a"}], "mountPoints": [{"sourceVolume": "a", "containerPath": "/scratch"}]},
        linux(devices=[{"hostPath": "/dev/nvidia0"}], initProcessEnabled=True),
    ],
)
def test_what_stays_inside_the_container_does_not(world, changes):
    world.role = Role.SUBMIT
    assert register(world, containerProperties=container(**changes))["revision"] == 1


def test_what_a_process_cannot_be_given_is_known():
    assert not_applied(ContainerOptions(secrets=(Secret("A", "a"),))) == []
    assert not_applied(container_options(EVERYTHING, {}, fargate=False)) == [
        "user",
        "privileged",
        "readonlyRootFilesystem",
        "ulimits",
        "mountPoints",
        "linuxParameters.initProcessEnabled",
        "linuxParameters.tmpfs",
        "linuxParameters.devices",
        "linuxParameters.maxSwap",
    ]
