"""Containers through the API: a real daemon and a real Docker engine, with boto3 and the aws command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.containers import a_boxed_definition, log_of, submitted, with_engine
from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.test_keys import a_key, client_with
from tests.docker_engine import IMAGE

SECRET = "s3cr3t-of-the-container"


@pytest.fixture(scope="module")
def boxed(docker_engine) -> Iterator[tuple[RunningWindfall, Any]]:
    """A daemon with an engine, and a Batch client with a queue `q`."""
    running = with_engine(docker_engine)
    try:
        running.up()
        yield running, a_queue(running)
    finally:
        running.close()


def test_the_aws_command_line_runs_a_container_and_reads_its_log(boxed):
    running, _ = boxed
    properties = {
        "image": IMAGE,
        "command": ["sh", "-c", "echo hello from $FROM_IMAGE $GREETING Ref::x; exit 3"],
        "environment": [{"name": "GREETING", "value": "and the job"}],
        "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}],
    }
    registered = running.aws(
        "batch register-job-definition --job-definition-name hello --type container"
        f" --container-properties '{json.dumps(properties)}'"
    )
    assert registered["revision"] == 1
    job_id = running.aws("batch submit-job --job-name hello --job-queue q --job-definition hello")["jobId"]
    (job,) = running.wait_for([job_id])
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 3), job
    assert job["statusReason"] == "Essential container in task exited"
    assert job["tags"]["windfall:isolation"].startswith("container (docker ")
    stream = job["container"]["logStreamName"]
    events = running.aws(f"logs get-log-events --log-group-name /aws/batch/job --log-stream-name {stream}")
    assert [event["message"] for event in events["events"]] == ["hello from yes and the job Ref::x"]


def test_an_array_of_containers(boxed):
    running, batch = boxed
    a_boxed_definition(
        batch, "indexed", 'echo "child $AWS_BATCH_JOB_ARRAY_INDEX"; exit $AWS_BATCH_JOB_ARRAY_INDEX'
    )
    array = submitted(batch, "indexed", arrayProperties={"size": 3})
    running.wait_for([array])
    children = running.wait_for([f"{array}:{index}" for index in range(3)])
    assert [child["container"]["exitCode"] for child in children] == [0, 1, 2]
    assert [log_of(running, f"{array}:{index}") for index in range(3)] == [f"child {n}\n" for n in range(3)]


def test_children_of_an_array_share_a_warm_container(boxed):
    running, batch = boxed
    script = """
        while read -r line; do
            index=${line#*'"index":'}; index=${index%%,*}
            echo "child $index"; echo "$index" >> /tmp/children; cat /tmp/children
            echo "{\\"exit_code\\": $index}" >&3
        done
    """
    a_boxed_definition(
        batch, "warm", script, user="worker", ulimits=[{"name": "nofile", "softLimit": 77, "hardLimit": 99}]
    )
    needs = [{"type": "VCPU", "value": "8"}, {"type": "MEMORY", "value": "64"}]
    array = submitted(
        batch,
        "warm",
        arrayProperties={"size": 3},
        containerOverrides={"resourceRequirements": needs},
        tags={"windfall:worker": "lines", "windfall:runtime": "container"},
    )
    running.wait_for([array])
    children = running.wait_for([f"{array}:{index}" for index in range(3)])
    assert [child["container"]["exitCode"] for child in children] == [0, 1, 2]
    assert log_of(running, f"{array}:2").split() == ["child", "2", "0", "1", "2"], (
        "one after the other in one container"
    )
    assert children[1]["tags"]["windfall:isolation"].startswith("warm worker, container (docker ")
    assert "windfall:not-applied" not in children[1]["tags"]


def test_the_nodes_of_a_multi_node_job_are_containers_that_reach_one_another(boxed):
    running, batch = boxed
    script = """
        if [ "$AWS_BATCH_JOB_NODE_INDEX" = 0 ]; then
            nc -l -p 7123 -e sh -c "cat >&2"; echo main heard that >&2
        else
            until echo "node $AWS_BATCH_JOB_NODE_INDEX speaks" | nc $AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS 7123
            do sleep 0.1; done
        fi
    """
    needs = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
    container = {"image": IMAGE, "command": ["sh", "-c", script], "resourceRequirements": needs}
    batch.register_job_definition(
        jobDefinitionName="talking",
        type="multinode",
        nodeProperties={
            "numNodes": 2,
            "mainNode": 0,
            "nodeRangeProperties": [{"targetNodes": "0:", "container": container}],
        },
    )
    job_id = submitted(batch, "talking")
    (job,) = running.wait_for([job_id])
    assert job["status"] == "SUCCEEDED", log_of(running, job_id)
    assert job["tags"]["windfall:isolation"].startswith("container (docker ")
    assert log_of(running, job_id).splitlines() == ["node 1 speaks", "main heard that"]


def test_all_that_a_definition_says_is_so_inside(boxed):
    running, batch = boxed
    shared = running.root / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "given").write_text("from the host")
    script = """
        id -u; ulimit -n; cat /proc/1/comm
        cat /host/given && echo; touch /host/no 2>/dev/null || echo host is read-only
        touch /no 2>/dev/null || echo root is read-only
        touch /memory/yes && echo memory is not
        ls -d /scratch
        stat -f -c "%b %S" /dev/shm
    """
    a_boxed_definition(
        batch,
        "detailed",
        script,
        user="worker",
        readonlyRootFilesystem=True,
        ulimits=[{"name": "nofile", "softLimit": 77, "hardLimit": 99}],
        volumes=[{"name": "host", "host": {"sourcePath": str(shared)}}, {"name": "scratch"}],
        mountPoints=[
            {"sourceVolume": "host", "containerPath": "/host", "readOnly": True},
            {"sourceVolume": "scratch", "containerPath": "/scratch"},
        ],
        linuxParameters={
            "initProcessEnabled": True,
            "sharedMemorySize": 16,
            "tmpfs": [{"containerPath": "/memory", "size": 4, "mountOptions": ["mode=1777"]}],
        },
    )
    job_id = submitted(batch, "detailed")
    (job,) = running.wait_for([job_id])
    said = log_of(running, job_id).splitlines()
    assert said[:2] == ["1234", "77"], said
    assert said[2] in ("docker-init", "tini")
    assert said[3:6] == ["from the host", "host is read-only", "root is read-only"]
    # A fresh volume belongs to root unless the image has the directory.
    assert said[6:8] == ["memory is not", "/scratch"]
    blocks, block_bytes = map(int, said[8].split())
    assert blocks * block_bytes == 16 << 20
    assert job["container"]["user"] == "worker"
    assert job["container"]["mountPoints"][0]["readOnly"] is True
    assert "windfall:not-applied" not in job["tags"]


def test_the_image_has_a_command_of_its_own(boxed, docker_engine):
    running, batch = boxed
    docker_engine.build_image("own:1", Entrypoint=["sh", "-c", 'echo "entered with $0"'], Cmd=["nothing"])
    a_definition(batch, "own", container={"image": "own:1"})
    ran = submitted(batch, "own")
    told = submitted(batch, "own", containerOverrides={"command": ["something"]})
    running.wait_for([ran, told], "SUCCEEDED")
    assert log_of(running, ran) == "entered with nothing\n"
    assert log_of(running, told) == "entered with something\n"


@pytest.mark.parametrize("pull", ["missing", "never"])
def test_an_image_that_cannot_be_had_fails_with_the_engines_words(boxed, pull):
    running, batch = boxed
    a_boxed_definition(batch, f"gone-{pull}", "true", "127.0.0.1:9/team/gone:1")
    job_id = submitted(batch, f"gone-{pull}", tags={"windfall:pull": pull})
    (job,) = running.wait_for([job_id])
    assert job["status"] == "FAILED"
    assert job["container"]["reason"].startswith("CannotPullContainerError: ")
    assert "exitCode" not in job["container"]
    assert job["statusReason"] == "Task failed to start"


def test_windfall_run_takes_an_image(boxed):
    running, _ = boxed
    ran = running.windfall(
        "run", "--queue", "q", "--image", IMAGE, "--memory-mib", "64", "--", "sh", "-c", "cat /etc/passwd; exit 4",
        check=False,
    )  # fmt: skip
    assert ran.returncode == 4, ran.stderr
    assert "worker:x:1234" in ran.stdout
    host = running.windfall(
        "run", "--queue", "q", "--memory-mib", "64", "--", "sh", "-c", "echo $0 on the host"
    )
    assert host.stdout == "sh on the host\n"


def test_a_mapped_image_is_a_process_and_says_what_did_not_apply(boxed):
    running, batch = boxed
    running.windfall("image", "add", "mapped:*", "--dir", "/", "--entrypoint", "sh -c")
    a_definition(
        batch,
        "mapped",
        "echo as a process",
        container={
            "image": "mapped:1",
            "user": "worker",
            "ulimits": [{"name": "core", "softLimit": 0, "hardLimit": 0}],
        },
    )
    job_id = submitted(batch, "mapped")
    (job,) = running.wait_for([job_id], "SUCCEEDED")
    assert log_of(running, job_id) == "as a process\n"
    assert not job["tags"]["windfall:isolation"].startswith("container")
    assert job["tags"]["windfall:not-applied"] == "user, ulimits"


def test_secrets_reach_the_job_and_nothing_else(boxed):
    running, batch = boxed
    value = running.root / "value"
    value.write_text(json.dumps({"password": SECRET}))
    running.windfall("secret", "set", "db", "--from-file", str(value))
    value.unlink()
    arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbC123:password::"
    secrets = [{"name": "PASSWORD", "valueFrom": arn}, {"name": "WHOLE", "valueFrom": "/prod/db"}]
    compare = f'test "$PASSWORD" = {SECRET[:6]}"{SECRET[6:]}" && echo as a variable;'
    a_boxed_definition(
        batch, "boxed-secret", f'{compare} test "$(cat /run/secrets/PASSWORD)" = "$PASSWORD" && echo as a file',
        secrets=secrets,
    )  # fmt: skip
    a_definition(
        batch, "host-secret", "sh", "-c", compare, container={"image": "windfall/host", "secrets": secrets}
    )
    boxed_job, host_job = submitted(batch, "boxed-secret"), submitted(batch, "host-secret")
    jobs = running.wait_for([boxed_job, host_job], "SUCCEEDED", "FAILED")
    assert log_of(running, boxed_job) == "as a variable\nas a file\n", jobs
    assert log_of(running, host_job) == "as a variable\n", jobs
    assert jobs[0]["container"]["secrets"] == secrets
    listed = running.windfall("secret", "list").stdout
    assert "db" in listed
    kept = [path for path in running.root.rglob("*") if path.is_file() and path.stat().st_size < 1 << 24]
    holding = [path for path in kept if f'{{"password": "{SECRET}"}}'.encode() in path.read_bytes()]
    assert holding == [running.data / "secrets" / "db"]


def test_a_secret_that_is_not_there_is_said_so(boxed):
    running, batch = boxed
    secrets = [{"name": "TOKEN", "valueFrom": "nobody-set-it"}]
    a_boxed_definition(batch, "unset", "true", secrets=secrets)
    a_definition(batch, "unset-host", "true", container={"image": "windfall/host", "secrets": secrets})
    for job in running.wait_for([submitted(batch, "unset"), submitted(batch, "unset-host")], "FAILED"):
        assert job["container"]["reason"].startswith(
            "ResourceInitializationError: unable to pull secrets or registry auth: there is no secret nobody-set-it"
        )
        assert "windfall secret set nobody-set-it" in job["container"]["reason"]


def test_only_an_admin_hands_out_the_host(boxed):
    running, admin = boxed
    submitter = client_with(running, a_key(running, "--role", "submit"))
    for name, properties in {
        "privileged": {"privileged": True},
        "mounting": {
            "volumes": [{"name": "v", "host": {"sourcePath": "/"}}],
            "mountPoints": [{"sourceVolume": "v", "containerPath": "/host"}],
        },
    }.items():
        with pytest.raises(ClientError, match=r"AccessDeniedException.*needs admin"):
            a_boxed_definition(submitter, name, "true", **properties)
    assert admin.describe_job_definitions(jobDefinitions=["privileged", "mounting"])["jobDefinitions"] == []
    a_boxed_definition(
        admin, "privileged", "ls /dev/mem /dev/loop-control >/dev/null && echo yes", privileged=True
    )
    # Whoever may submit can use what an admin has registered.
    job_id = submitted(submitter, "privileged")
    (job,) = running.wait_for([job_id])
    # A host that is a container itself may not have all capabilities to give: then the engine was asked, and says so.
    said = job["tags"].get("windfall:isolation", "") + job["container"].get("reason", "")
    assert "privileged" in said or "unable to apply caps" in said, job
    a_boxed_definition(submitter, "modest", "cat /proc/self/status", user="worker")
    (job,) = running.wait_for([submitted(submitter, "modest")])
    assert job["status"] == "SUCCEEDED"


def test_a_job_sees_the_gpus_it_was_given_whatever_its_definition_says(docker_engine):
    running = with_engine(docker_engine, "--gpus", "simulated:2")
    try:
        running.up()
        batch = a_queue(running)
        a_definition(
            batch,
            "gpu",
            *("sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES"; ls /dev'),
            gpus=1,
            container={
                "image": IMAGE,
                "environment": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                "linuxParameters": {
                    "devices": [{"hostPath": "/dev/nvidia0"}, {"hostPath": "/dev/nvidiactl"}]
                },
            },
        )
        job_id = submitted(batch, "gpu")
        (job,) = running.wait_for([job_id])
        assert job["status"] == "SUCCEEDED", job
        first, *devices = log_of(running, job_id).splitlines()
        assert first.startswith("GPU-simulated-")
        assert not [name for name in devices if name.startswith("nvidia")]
    finally:
        running.close()


def test_memory_is_a_limit_and_the_reason_is_awss(boxed):
    running, batch = boxed
    a_boxed_definition(batch, "greedy", "tail /dev/zero")
    (job,) = running.wait_for([submitted(batch, "greedy", timeout={"attemptDurationSeconds": 60})])
    assert job["container"]["exitCode"] == 137
    assert job["container"]["reason"] == "OutOfMemoryError: Container killed due to memory usage"


def test_a_container_without_an_engine_fails_and_says_what_to_do(fresh):
    running = fresh(
        "--vcpus", "2", "--gpus", "none", "--container-socket", "/nowhere.sock", "--runtime", "container"
    )
    batch = a_queue(running)
    a_boxed_definition(batch, "nowhere", "true")
    (job,) = running.wait_for([submitted(batch, "nowhere")], "FAILED")
    assert job["container"]["reason"].startswith(
        "CannotCreateContainerError: no container engine answers here"
    )
    # The host is no image, and goes on running what is meant for it.
    assert running.windfall("run", "--queue", "q", "--", "echo", "here").stdout == "here\n"
