"""What people see of jobs, images, queues and the daemon, and what is asked of the daemon for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.small_disk import mounted_at
from tests.unit.cli.fake_daemon import Error
from tests.unit.cli.test_following import ID
from windfall.capacity.machines import GpuDevice, Machine
from windfall.cli.up import announce, own_warnings
from windfall.daemon.directory import DataDirectory
from windfall.daemon.serving import Ready
from windfall.daemon.settings import Settings
from windfall.jobs.ids import MachineId
from windfall.jobs.resources import Resources

STATUS = {
    "version": "0.1.0",
    "pid": 4711,
    "data": "/d",
    "store": "sqlite",
    "startedAt": 1,
    "region": "us-east-1",
    "services": ["batch", "logs"],
    "machine": {
        "vcpus": 8,
        "memoryMib": 16384,
        "usedVcpus": 1.5,
        "usedMemoryMib": 2048,
        "isolation": "process, bubblewrap",
        "jobUser": "nobody",
        "gpus": [
            {
                "id": "GPU-0",
                "name": "H200",
                "memoryMib": 144384,
                "simulated": True,
                "heldBy": ID,
                "health": "well",
                "fence": None,
            },
            {
                "id": "GPU-1",
                "name": "H200",
                "memoryMib": None,
                "simulated": True,
                "heldBy": None,
                "health": "fenced",
                "fence": "XID 79",
            },
        ],
    },
    "environments": [
        {
            "name": "e",
            "state": "ENABLED",
            "minvCpus": 0,
            "maxvCpus": 1_000_000,
            "instances": 1,
            "instanceList": [
                {
                    "id": "i-0123456789abcdef0",
                    "type": "g5.xlarge",
                    "state": "TERMINATING",
                    "vcpus": 4,
                    "gpus": 1,
                    "usdHour": 0.302,
                    "reclaimAt": 1,
                    "runningJobs": 2,
                }
            ],
            "runningJobs": 2,
        }
    ],
    "queues": [
        {
            "name": "q",
            "state": "DISABLED",
            "priority": 3,
            "counts": {"RUNNABLE": 2, "PENDING": 1, "FAILED": 4},
        }
    ],
    "waiting": 3,
    "warnings": ["jobs can see each other"],
}
DETAIL = {
    "jobId": ID,
    "jobName": "train",
    "jobQueue": "arn:aws:batch:r:1:job-queue/q",
    "jobDefinition": "arn:aws:batch:r:1:job-definition/d:7",
    "status": "RUNNING",
    "createdAt": 1_700_000_000_000,
    "startedAt": 1_700_000_002_000,
    "dependsOn": [{"jobId": "other", "type": "N_TO_N"}],
    "tags": {"windfall:isolation": "process + cgroup v2", "team": "vision"},
    "retryStrategy": {"attempts": 3},
    "timeout": {"attemptDurationSeconds": 120},
    "container": {
        "image": "i",
        "command": ["python3", "a b.py"],
        "environment": [{"name": "TOKEN", "value": "s3cret"}],
        "resourceRequirements": [
            {"type": "VCPU", "value": "1"},
            {"type": "MEMORY", "value": "2048"},
            {"type": "GPU", "value": "1"},
        ],
        "logStreamName": "d/default/2",
    },
    "attempts": [
        {
            "startedAt": 1_700_000_002_000,
            "stoppedAt": 1_700_000_005_000,
            "statusReason": "Host EC2 (instance i-1) terminated.",
            "container": {"logStreamName": "d/default/1"},
        }
    ],
}


def squeezed(text):
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_status(daemon, windfall):
    daemon.answers["Status"] = STATUS
    ran = windfall("status")
    page = squeezed(ran.out)
    assert f"windfall 0.1.0 at {daemon.url}, pid 4711" in page
    assert "vCPUs 1.5 of 8 in use" in page
    assert "GPUs 1 of 2 in use, 1 fenced: see `windfall gpus`" in page
    assert f"GPU-0 H200 (simulated) 141 GiB well {ID}" in page
    assert "GPU-1 H200 (simulated) fenced free" in page
    assert "e ENABLED 0 no limit 1 2" in page
    assert "i-0123456789abcdef0 g5.xlarge gone in 0.0 s e 4 1 0.302 2" in page
    assert "q DISABLED 3 3 0 0 4" in page
    assert ran.err == "windfall: warning: jobs can see each other\n"
    assert json.loads(windfall("status", "--json").out) == STATUS


def test_status_while_the_agent_is_away(daemon, windfall):
    daemon.answers["Status"] = STATUS | {"machine": None}
    assert "its agent is not connected" in windfall("status").out


def test_status_of_several_daemons(daemon, windfall):
    present = [
        {"url": "http://h:2", "pid": 2, "leads": False},
        {"url": "http://h:1", "pid": 1, "leads": True},
    ]
    daemon.answers["Status"] = STATUS | {"store": "postgresql", "daemons": present}
    page = squeezed(windfall("status").out)
    assert "leads http://h:1, pid 1\nfollows http://h:2, pid 2" in page


def test_commands_ask_any_daemon_that_answers(daemon, windfall, tmp_path):
    daemon.answers["Status"] = STATUS
    directory = DataDirectory(tmp_path / "data")
    lives = directory.add_address("other", daemon.url)
    directory.write_address("http://127.0.0.1:1")
    assert f"windfall 0.1.0 at {daemon.url}" in squeezed(windfall("status").out)
    os.close(lives)


def test_queues(daemon, windfall):
    daemon.answers["Status"] = STATUS
    assert squeezed(windfall("queues").out).splitlines()[1] == "q DISABLED 3 3 0 0 4"
    assert json.loads(windfall("queues", "--json").out) == {"queues": STATUS["queues"]}


def test_why(daemon, windfall):
    daemon.answers["Why"] = {
        "jobId": ID,
        "jobName": "train",
        "state": "RUNNABLE",
        "reasons": [{"code": "c", "text": "asks for 4 GPUs, the largest has 2"}],
        "changes": ["would start now with at most 2 GPUs"],
        "expectedAt": None,
        "awsReason": "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
    }
    page = windfall("why", ID).out
    assert page.splitlines() == [
        f"train {ID} RUNNABLE",
        "  asks for 4 GPUs, the largest has 2",
        "what would help:",
        "  would start now with at most 2 GPUs",
    ]
    assert daemon.params_of("Why") == [{"jobId": ID}]


def test_describe(daemon, windfall):
    daemon.answers.update(describejobs={"jobs": [DETAIL]}, Status=STATUS)
    page = squeezed(windfall("describe", ID).out)
    for line in (
        "state RUNNING",
        "queue q",
        "definition d:7",
        "command python3 'a b.py'",
        "asks for 1 vCPU, 2,048 MiB, 1 GPU",
        "GPUs held GPU-0 (H200 (simulated))",
        "isolation process + cgroup v2",
        "depends on other N_TO_N",
        "tags team=vision",
        "timeout 2 min",
        "log stream d/default/2",
        "environment TOKEN",
    ):
        assert line in page
    assert "s3cret" not in page
    assert "3.0 s its instance i-1 was taken away or lost" in page
    assert json.loads(windfall("describe", ID, "--json").out) == DETAIL


def test_describe_an_array(daemon, windfall):
    summary = {"SUCCEEDED": 3, "RUNNABLE": 1, "FAILED": 0}
    array = DETAIL | {"attempts": [], "arrayProperties": {"size": 4, "statusSummary": summary}}
    daemon.answers.update(describejobs={"jobs": [array]}, Status=STATUS)
    page = windfall("describe", ID).out
    assert f"Array of 4\n{'█' * 30}{'·' * 10}\nSUCCEEDED 3\nRUNNABLE 1\n" in page


def test_a_job_that_is_not_there(daemon, windfall):
    unknown = Error("ClientException", "does not exist")
    daemon.answers.update(
        describejobs={"jobs": []}, describejobqueues={"jobQueues": []}, describeservicejob=unknown
    )
    ran = windfall("describe", ID)
    assert ran.code == 1
    assert ran.err == f"windfall: there is no job '{ID}'; `windfall jobs --all` lists the jobs there are\n"


@pytest.mark.parametrize(
    ("command", "status", "code", "text"),
    [
        ("cancel", "RUNNABLE", 0, "is being canceled"),
        ("cancel", "RUNNING", 1, "was left alone; stop it with `windfall terminate`"),
        ("terminate", "RUNNING", 0, "is being terminated"),
        ("terminate", "SUCCEEDED", 1, "is SUCCEEDED already"),
    ],
)
def test_stopping(daemon, windfall, command, status, code, text):
    daemon.answers.update(describejobs={"jobs": [DETAIL | {"status": status}]}, canceljob={}, terminatejob={})
    ran = windfall(command, ID, "--reason", "enough")
    assert ran.code == code
    assert text in ran.out
    sent = daemon.params_of(f"{command}job")
    assert sent == ([{"jobId": ID, "reason": "enough"}] if code == 0 else [])


def test_stopping_goes_on_after_an_unknown_job(daemon, windfall):
    daemon.answers.update(
        FindJobs={"jobIds": []},
        describejobqueues={"jobQueues": []},
        describejobs={"jobs": [DETAIL]},
        terminatejob={},
    )
    ran = windfall("terminate", "nosuch", ID, "--json")
    assert ran.code == 1
    assert [one["outcome"] for one in json.loads(ran.out)["jobs"]] == ["unknown", "terminated"]
    assert "there is no job 'nosuch'" in ran.err


def test_images(daemon, windfall, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    daemon.answers.update(AddImage=lambda asked: asked, RemoveImage={}, ListImages={"images": []})
    ran = windfall(
        "image", "add", "team/*", "--dir", "code", "--entrypoint", "python3 'my train.py'", "--env", "A=b"
    )
    assert (ran.code, ran.out) == (0, f"team/* runs in {tmp_path / 'code'}\n")
    assert daemon.params_of("AddImage") == [
        {
            "pattern": "team/*",
            "directory": str(tmp_path / "code"),
            "entrypoint": ["python3", "my train.py"],
            "environment": {"A": "b"},
        }
    ]
    assert windfall("image", "remove", "team/*").code == 0
    assert daemon.params_of("RemoveImage") == [{"pattern": "team/*"}]
    assert "`windfall image add IMAGE --dir DIR` maps one" in windfall("image", "list").err


def test_storage(daemon, windfall, tmp_path):
    daemon.answers.update(
        AddStorage=lambda asked: {"tenant": None, **asked, "note": "made later"},
        RemoveStorage={},
        ListStorage={
            "places": [{"uri": "s3://data", "write": False, "tenant": None}],
            "tenant": "default",
            "own": ["file:///objects/checkpoints"],
        },
    )
    ran = windfall("storage", "add", "s3://data", "--write", "--tenant", "vision")
    assert (ran.code, ran.out) == (0, "jobs of tenant vision may read and write s3://data\n")
    assert "made later" in ran.err
    assert windfall("storage", "add", str(tmp_path)).code == 0
    assert daemon.params_of("AddStorage") == [
        {"uri": "s3://data", "write": True, "tenant": "vision"},
        {"uri": tmp_path.as_uri(), "write": False},
    ]
    assert [squeezed(line) for line in windfall("storage", "list").out.splitlines()[1:]] == [
        "file:///objects/checkpoints read, write default its own",
        "s3://data read (all) registered",
    ]
    assert (
        windfall("storage", "remove", "s3://data").out
        == "s3://data is no longer registered for every tenant\n"
    )
    assert daemon.params_of("RemoveStorage") == [{"uri": "s3://data"}]


def test_images_are_listed_without_values(daemon, windfall):
    mapping = {
        "pattern": "i",
        "directory": None,
        "entrypoint": ["a", "b c"],
        "environment": {"TOKEN": "s3cret"},
    }
    daemon.answers["ListImages"] = {"images": [mapping]}
    assert squeezed(windfall("image", "list").out).splitlines()[1] == "i (private) a 'b c' TOKEN"
    assert json.loads(windfall("image", "list", "--json").out)["images"] == [mapping]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--dir", "gone"], "is not a directory"), (["--dir", ".", "--entrypoint", "a 'b"], "check its quotes")],
)
def test_an_image_that_cannot_be(daemon, windfall, arguments, text):
    ran = windfall("image", "add", "i", *arguments)
    assert ran.code == 2
    assert text in ran.err
    assert daemon.asked == []


def test_down_waits_for_the_process(daemon, windfall):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:

        def down(_):
            process.stdin.close()
            return {"runningJobs": 2, "pid": process.pid}

        daemon.answers["Down"] = down
        ran = windfall("down", "--kill", "--timeout", "0")
        # The fake keeps listening, so that the wait ends by its limit.
        assert ran.code == 1
        assert "2 running jobs: being stopped" in ran.err
        assert f"the daemon (pid {process.pid}) has not stopped" in ran.err
    assert daemon.params_of("Down") == [{"kill": True}]


def test_a_role_that_is_too_low(daemon, windfall):
    daemon.answers["Status"] = STATUS
    daemon.answers["Down"] = Error("AccessDeniedException", "The key may read only.", 403)
    ran = windfall("down")
    assert (ran.code, ran.err) == (1, "windfall: The key may read only\n")


def test_what_up_says(capsys, tmp_path):
    gpus = tuple(GpuDevice(f"g{n}", "H200", 144384, simulated=True) for n in range(2))
    facts = {"isolation": "process", "job_user": "nobody", "warnings": "no cgroups\nno bubblewrap"}
    machine = Machine(MachineId("m"), Resources(8, 24_064, 2), gpus, facts)
    settings = Settings(tmp_path / "a b", job_users="none")
    announce(settings, Ready("http://h:1", machine, 1), named_directory=True)
    said = capsys.readouterr()
    assert said.out == "windfall is listening on http://h:1\n"
    assert said.err.splitlines() == [
        f"data directory  {tmp_path / 'a b'}",
        "offers          8 vCPUs, 23.5 GiB of memory, 2 × H200 (simulated)",
        "isolation       process, jobs run as nobody",
        "containers      no engine answers, jobs are processes",
        f"checkpoints     {(tmp_path / 'a b' / 'objects').as_uri()}",
        "adopted         1 unfinished job of an earlier run",
        "warning: no cgroups",
        "warning: no bubblewrap",
        "`windfall doctor` says more about this host, and what to do",
        f"run a job, in another shell: windfall run --data '{tmp_path / 'a b'}' -- CMD",
        f"for AWS clients, in another shell: eval \"$(windfall env --data '{tmp_path / 'a b'}')\"",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"container_socket": "/nowhere"}, "no engine answers at /nowhere, jobs are processes"),
        ({"container_socket": "none"}, "not looked for, jobs are processes"),
        (
            {"runtime": "container"},
            "no engine answers, and jobs are to be containers: they fail until one does",
        ),
    ],
)
def test_up_says_where_it_looked_for_an_engine(capsys, tmp_path, settings, said):
    machine = Machine(MachineId("m"), Resources(8, 24_064), (), {})
    announce(Settings(tmp_path, **settings), Ready("http://h:1", machine, 0), named_directory=True)
    assert f"containers      {said}" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("host", "warned"),
    [
        *((host, False) for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost")),
        *((host, True) for host in ("0.0.0.0", "::", "192.0.2.7", "gpu.example.com")),
    ],
)
def test_an_address_that_others_reach_is_warned_of(tmp_path, host, warned):
    found = own_warnings(Settings(tmp_path, host=host))
    assert any("not encrypted" in line and "TLS proxy" in line for line in found) == warned


def test_little_disk_is_warned_of_with_what_to_do(tmp_path):
    (tmp_path / "small").mkdir()
    with mounted_at(tmp_path / "small") as small:
        (line,) = own_warnings(Settings(small))
    assert "MiB are free" in line
    assert "--data DIR" in line
    assert own_warnings(Settings(tmp_path / "not" / "there")) == []


def test_what_a_daemon_says_that_follows(capsys, tmp_path):
    settings = Settings(tmp_path, store="postgresql://h/d")
    announce(settings, Ready("http://h:1", None, 0, leader="http://h:2"), named_directory=True)
    said = capsys.readouterr()
    assert said.out == "windfall is listening on http://h:1\n"
    assert said.err.splitlines()[1] == "leads           no, http://h:2 does"
    announce(settings, Ready("http://h:1", None, 0, leader="http://h:1"), named_directory=True)
    assert capsys.readouterr().err.splitlines()[1] == "leads           yes"


def test_up_refuses_bad_settings(windfall, tmp_path):
    ran = windfall("up", "--data", str(tmp_path), "--gpus", "many")
    allowed = "auto, none, simulated:N or recorded:/PATH"
    assert (ran.code, ran.err) == (2, f"windfall: gpus must be {allowed}, not 'many'\n")
    assert windfall("up", "--data", str(tmp_path), "--port", "70000").code == 2
    assert list(tmp_path.iterdir()) == []
