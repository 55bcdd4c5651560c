"""`windfall run`: what it submits, what it makes when there is nothing, and how it ends."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import threading

import pytest

from tests.unit.cli.fake_daemon import Error
from tests.unit.cli.test_following import ID, FakeLogs, a_job
from windfall.aws_api.batch.run_definitions import definition_name
from windfall.cli.progress import exit_code
from windfall.cli.submitting import name_of

HARMLESS = {"CheckDirectories", "Status", "describejobqueues", "submitjob"}
MACHINE = {"machine": {"vcpus": 8, "memoryMib": 65536, "gpus": [{}, {}]}, "environments": []}
SUMMARY = {"SUCCEEDED": 2, "FAILED": 1}


@pytest.fixture
def ready(daemon):
    """A daemon with the default queue and definition, whose job has succeeded when looked at."""
    daemon.answers.update(
        describejobqueues={"jobQueues": [{"jobQueueName": "windfall", "state": "ENABLED"}]},
        describejobdefinitions={"jobDefinitions": [{"revision": 1}]},
        submitjob=lambda asked: {"jobId": ID, "jobName": asked["jobName"], "jobArn": "arn"},
        describejobs={"jobs": [a_job("SUCCEEDED", ended=["s"])]},
        GetLogEvents=FakeLogs(s=["one", "two"]),
        CheckDirectories=own_directories,
        Status=MACHINE,
    )
    return daemon


def own_directories(asked):
    """The answer of a daemon whose jobs run as the user of this process, who may write to all that was asked about."""
    found = [{"path": path, "enters": True, "writes": True} for path in asked["directories"]]
    return {"user": pwd.getpwuid(os.getuid()).pw_name, "host": os.uname().nodename, "directories": found}


def test_the_log_goes_to_stdout_and_all_else_to_stderr(ready, windfall):
    ran = windfall("run", "--", "echo", "--json")
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert ran.err == f"windfall: job {ID} (echo) is in queue windfall\n"


def test_what_is_submitted(ready, windfall):
    options = """
        --gpus 2 --vcpus 4 --memory-mib 512 --queue q --array 3 --name n --env A=1 --env B=x=y
        --timeout 60 --attempts 5 --detach --clean
    """
    windfall("run", *options.split(), "--", "python3", "train.py", "--gpus", "9")
    (sent,) = ready.params_of("submitjob")
    assert sent == {
        "jobName": "n",
        "jobQueue": "q",
        "jobDefinition": "windfall-run",
        "arrayProperties": {"size": 3},
        "containerOverrides": {
            "command": ["python3", "train.py", "--gpus", "9"],
            "environment": [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}],
            "resourceRequirements": [
                {"type": "VCPU", "value": "4"},
                {"type": "MEMORY", "value": "512"},
                {"type": "GPU", "value": "2"},
            ],
        },
        "timeout": {"attemptDurationSeconds": 60},
        "retryStrategy": {"attempts": 5},
    }


def test_detached_runs_print_the_id_only(ready, windfall):
    assert windfall("run", "--detach", "--", "true").out == f"{ID}\n"
    assert json.loads(windfall("run", "--detach", "--json", "--", "true").out)["jobId"] == ID


def test_json_is_one_document_and_the_log_goes_aside(ready, windfall):
    ran = windfall("run", "--json", "--", "true")
    assert json.loads(ran.out)["status"] == "SUCCEEDED"
    assert "one\ntwo\n" in ran.err


@pytest.fixture
def fresh(ready):
    """A daemon without queue and definition, that refuses a job for them as the real one does."""

    def submit(asked):
        made = {one.operation for one in ready.asked}
        if ready.lacks_queue and "createjobqueue" not in made:
            return Error("ClientException", f"Job queue {asked['jobQueue']} does not exist")
        if "registerjobdefinition" not in made:
            return Error("ClientException", f"Job definition {asked['jobDefinition']} does not exist")
        return {"jobId": ID, "jobName": asked["jobName"], "jobArn": "arn"}

    ready.lacks_queue = True
    ready.answers.update(
        describejobqueues={"jobQueues": []},
        describejobdefinitions={"jobDefinitions": []},
        createcomputeenvironment={},
        createjobqueue=Error(
            "ClientException", "Error executing request, Exception : windfall already exists"
        ),
        registerjobdefinition={"revision": 1},
        submitjob=submit,
    )
    return ready


def test_a_fresh_daemon_gets_what_a_run_needs_once(fresh, windfall):
    assert windfall("run", "--", "true").code == 0
    made = [one.operation for one in fresh.asked]
    assert made[:10] == [
        "CheckDirectories",
        "Status",
        "describejobqueues",
        "describejobqueues",
        "submitjob",
        "createcomputeenvironment",
        "createjobqueue",
        "describejobdefinitions",
        "registerjobdefinition",
        "submitjob",
    ]
    (definition,) = fresh.params_of("registerjobdefinition")
    assert definition["containerProperties"]["image"] == "windfall/host"
    assert fresh.params_of("submitjob")[-1]["jobQueue"] == "windfall"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--share", "blue"], "has no shares: leave --share and --priority out"),
        (["--spot", "--priority", "1"], "'windfall-spot', has no shares"),
        (["--git", "https://host/repo"], "--git"),
        (["--checkpoint=here"], "--checkpoint must be true"),
        (["--gpus", "2", "--gpu-share", "0.5"], "a part of one GPU"),
        (["--tag", "windfall:worker=a:b"], "windfall:worker is for the children of an array job"),
        (["--dir", "/nowhere/at/all"], "is not a directory"),
        (["--name", "my job"], "letters, digits, - and _"),
    ],
)
def test_a_run_that_would_be_refused_makes_nothing(fresh, windfall, options, words):
    ran = windfall("run", *options, "--", "true")
    assert ran.code in (1, 2)
    assert words in ran.err
    assert {one.operation for one in fresh.asked} <= HARMLESS


@pytest.mark.parametrize("options", [[], ["--queue", "q"]])
def test_a_run_that_is_refused_makes_nothing(fresh, windfall, options):
    fresh.answers["submitjob"] = Error("ClientException", "Job queue q does not exist")
    ran = windfall("run", *options, "--", "true")
    assert (ran.code, ran.err) == (
        1,
        "windfall: there is no queue 'q'; `windfall queues` lists the queues there are\n"
        if options
        else "windfall: Job queue q does not exist\n",
    )
    assert {one.operation for one in fresh.asked} <= HARMLESS


def test_a_definition_alone_is_made_where_a_queue_is(fresh, windfall):
    fresh.lacks_queue = False
    assert (
        windfall("run", "--memory", "1G", "--queue", "q", "--share", "blue", "--detach", "--", "true").code
        == 0
    )
    assert [one.operation for one in fresh.asked] == [
        "CheckDirectories",
        "submitjob",
        "describejobdefinitions",
        "registerjobdefinition",
        "submitjob",
    ]


@pytest.mark.parametrize(
    ("queues", "chosen"),
    [({"gpu": "ENABLED"}, "gpu"), ({"gpu": "ENABLED", "windfall": "ENABLED"}, "windfall")],
)
def test_queues_that_there_are_come_first(ready, windfall, queues, chosen):
    ready.answers["describejobqueues"] = {
        "jobQueues": [{"jobQueueName": name, "state": state} for name, state in queues.items()]
    }
    windfall("run", "--detach", "--", "true")
    assert ready.params_of("submitjob")[0]["jobQueue"] == chosen


def test_of_several_queues_one_must_be_named(ready, windfall):
    ready.answers["describejobqueues"] = {
        "jobQueues": [{"jobQueueName": name, "state": "ENABLED"} for name in ("b", "a")]
    }
    ran = windfall("run", "--", "true")
    assert (ran.code, ran.err) == (1, "windfall: which queue? name one with --queue: a, b\n")


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (a_job("SUCCEEDED"), 0),
        (a_job("FAILED", container={"exitCode": 7}), 7),
        (a_job("FAILED", container={"exitCode": 0}), 1),
        (a_job("FAILED", container={"exitCode": 4711}), 1),
        (a_job("FAILED", container={}), 1),
        (a_job("SUCCEEDED", arrayProperties={"size": 2, "statusSummary": {"SUCCEEDED": 2}}), 0),
        (a_job("FAILED", arrayProperties={"size": 3, "statusSummary": SUMMARY}), 1),
        (a_job("FAILED", arrayProperties={"size": 900, "statusSummary": {"FAILED": 900}}), 100),
    ],
)
def test_exit_codes(job, code):
    assert exit_code(job) == code


def test_a_failed_job_says_why(ready, windfall):
    failed = a_job("FAILED", ended=["s"])
    failed["container"] |= {
        "exitCode": 137,
        "reason": "OutOfMemoryError: Container killed due to memory usage",
    }
    ready.answers["describejobs"] = {"jobs": [failed]}
    ran = windfall("run", "--", "true")
    assert ran.code == 137
    assert f"job {ID} FAILED: out of memory: it used more than it asked for" in ran.err


def test_an_array_names_children_that_failed(ready, windfall):
    ready.answers["describejobs"] = {
        "jobs": [a_job("FAILED", arrayProperties={"size": 3, "statusSummary": SUMMARY})]
    }
    child = {"jobId": f"{ID}:2", "status": "FAILED", "container": {"exitCode": 9}}
    ready.answers["listjobs"] = {"jobSummaryList": [child]}
    ran = windfall("run", "--array", "3", "--", "true")
    assert (ran.code, ran.out) == (1, "")
    assert "3/3 done, 1 failed" in ran.err
    assert f"{ID}:2 exit code 9; its log: windfall logs {ID}:2" in ran.err


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("/usr/bin/python3", "train.py"), "train"),
        (("python", "-u", "src/my train.v2.py", "--config", "a.py"), "my-train-v2"),
        (("python", "-m", "pkg.train", "data.py"), "train"),
        (("python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"), "train"),
        (("torchrun", "--rdzv-conf=a.py", "train.py"), "train"),
        (("./run.sh",), "run"),
        (("sh", "-c", "python train.py"), "sh"),
        (("python3", "-c", "print()"), "python3"),
        (("python", "-m"), "python"),
        (("./-",), "run"),
        (("a" * 200,), "a" * 64),
    ],
)
def test_names_from_commands(command, name):
    assert name_of(command) == name


@pytest.fixture
def standing(ready, tmp_path, monkeypatch):
    """A shell in a directory, with a virtual environment and a secret."""
    place = tmp_path / "it's here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    return place


def variables(asked):
    return {each["name"]: each["value"] for each in asked["containerOverrides"]["environment"]}


def test_a_job_starts_where_the_user_stands_with_the_users_programs(ready, standing, windfall, tmp_path):
    ran = windfall("run", "--detach", "--env", "LANG=de", "--", "python", "train.py")
    (sent,) = ready.params_of("submitjob")
    assert sent["parameters"] == {"windfall-dir": str(standing)}
    assert sent["containerOverrides"]["command"] == ["python", "train.py"]
    assert variables(sent)["PATH"] == os.environ["PATH"]
    assert variables(sent)["VIRTUAL_ENV"] == str(tmp_path / "venv")
    assert variables(sent)["HOME"] == os.environ["HOME"]
    assert variables(sent)["LANG"] == "de"
    assert "hf_very_secret" not in json.dumps(sent)
    assert "HF_TOKEN is not taken along" in ran.err
    assert "`hf auth login`" in ran.err


@pytest.mark.parametrize(
    ("options", "directory"),
    [(["--clean"], None), (["--image", "i"], None), (["--clean", "--dir", "."], ".")],
)
def test_nothing_is_taken_along_that_is_not_wanted(ready, standing, windfall, options, directory):
    windfall("run", "--detach", *options, "--", "true")
    (sent,) = ready.params_of("submitjob")
    assert variables(sent) == {}
    assert sent.get("parameters", {}).get("windfall-dir") == (directory and str(standing))


def test_a_checkout_takes_the_place_of_the_directory(ready, standing, windfall):
    windfall("run", "--detach", "--git", "https://host/code@main", "--", "true")
    (sent,) = ready.params_of("submitjob")
    assert "parameters" not in sent
    assert variables(sent)["PATH"] == os.environ["PATH"]


def test_a_directory_whose_name_is_not_utf8_is_refused(ready, standing, windfall, monkeypatch):
    place = standing / "caf\udce9"
    place.mkdir()
    monkeypatch.chdir(place)
    ran = windfall("run", "--", "true")
    assert ran.code == 2
    assert "is not UTF-8" in ran.err
    assert ready.asked == []


def test_a_dry_run_shows_it_and_submits_nothing(ready, standing, windfall):
    ran = windfall("run", "--dry-run", "--spot", "--checkpoint", "--", "python", "train.py")
    assert ran.code == 0
    lines = [line.split(maxsplit=1) for line in ran.out.splitlines()]
    assert ["name", "train"] in lines
    assert ["queue", "windfall-spot"] in lines
    assert ["directory", str(standing)] in lines
    assert ["windfall:checkpoint", "true"] in lines
    assert f"  PATH={os.environ['PATH']}" in ran.out.splitlines()
    assert "hf_very_secret" not in ran.out + ran.err
    assert "nothing was submitted" in ran.err
    asked = json.loads(windfall("run", "--dry-run", "--json", "--", "true").out)
    assert asked["parameters"] == {"windfall-dir": str(standing)}
    assert ready.params_of("submitjob") == []


def test_a_directory_that_the_jobs_user_cannot_enter_is_refused_before_anything(ready, standing, windfall):
    ready.answers["CheckDirectories"] = lambda asked: {
        **own_directories(asked),
        "user": "nobody",
        "directories": [{"path": path, "enters": False, "writes": False} for path in asked["directories"]],
    }
    ran = windfall("run", "--", "true")
    assert ran.code == 1
    assert f"jobs of this daemon run as nobody and cannot enter the directory {standing}" in ran.err
    assert "--clean" in ran.err
    assert [one.operation for one in ready.asked] == ["CheckDirectories"]


def test_ctrl_c_stops_the_job_and_waits_for_its_end(ready):
    running, stopped = a_job(current="s"), a_job("FAILED", ended=["s"], statusReason="stopped")
    terminated = threading.Event()

    def describe(_):
        return {"jobs": [stopped if terminated.is_set() else running]}

    def terminate(_):
        terminated.set()
        return {}

    ready.answers.update(describejobs=describe, terminatejob=terminate)
    with subprocess.Popen(
        [sys.executable, "-m", "windfall.cli", "run", "--", "sleep", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ran:
        assert ran.stdout.readline() == "one\n"
        ran.send_signal(signal.SIGINT)
        out, err = ran.stdout.read(), ran.stderr.read()
    assert ran.returncode == 130
    assert out == "two\n"
    assert "stopping the job in 3 s; press Ctrl-C again to detach and leave it running" in err
    assert "Traceback" not in err
    assert ready.params_of("terminatejob") == [{"jobId": ID, "reason": "Ctrl-C in windfall run"}]


def test_a_second_ctrl_c_detaches_and_the_job_goes_on(ready):
    ready.answers.update(describejobs={"jobs": [a_job(current="s")]}, terminatejob={})
    with subprocess.Popen(
        [sys.executable, "-m", "windfall.cli", "run", "--", "sleep", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ran:
        assert ran.stdout.readline() == "one\n"
        ran.send_signal(signal.SIGINT)
        assert "is in queue" in ran.stderr.readline()
        assert "press Ctrl-C again to detach" in ran.stderr.readline()
        ran.send_signal(signal.SIGINT)
        err = ran.stderr.read()
    assert ran.returncode == 130
    assert f"detached, the job goes on; follow it with `windfall logs -f {ID}`" in err
    assert ready.params_of("terminatejob") == []


def test_a_later_ctrl_c_does_not_wait_for_the_end(ready):
    ready.answers.update(describejobs={"jobs": [a_job(current="s")]}, terminatejob={})
    with subprocess.Popen(
        [sys.executable, "-m", "windfall.cli", "run", "--", "sleep", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ran:
        assert ran.stdout.readline() == "one\n"
        ran.send_signal(signal.SIGINT)
        for words in ("is in queue", "to detach", "leave without waiting for its end"):
            assert words in ran.stderr.readline()
        ran.send_signal(signal.SIGINT)
        err = ran.stderr.read()
    assert ran.returncode == 130
    assert f"windfall describe {ID}" in err
    assert len(ready.params_of("terminatejob")) == 1


@pytest.mark.parametrize(
    ("options", "memory_mib"),
    [
        ([], 7372),
        (["--vcpus", "2"], 14745),
        (["--vcpus", "99"], 58982),
        (["--gpus", "1"], 29491),
        (["--memory", "16G"], 16384),
        (["--memory", "1.5GiB"], 1536),
        (["--memory", "512m"], 512),
        (["--memory-mib", "512"], 512),
    ],
)
def test_memory_is_what_is_asked_or_a_share_of_the_machine(ready, windfall, options, memory_mib):
    windfall("run", "--detach", *options, "--", "true")
    (sent,) = ready.params_of("submitjob")
    requirements = sent["containerOverrides"]["resourceRequirements"]
    assert {"type": "MEMORY", "value": str(memory_mib)} in requirements


@pytest.mark.parametrize("text", ["16", "G", "-1G", "1X", "1M"])
def test_what_is_no_amount_of_memory_is_refused(ready, windfall, text):
    ran = windfall("run", f"--memory={text}", "--", "true")
    assert ran.code == 2
    assert "--memory" in ran.err
    assert ready.asked == []


def test_instances_with_types_of_their_own_and_unknown_machines_get_the_least_default(ready, windfall):
    simulated = {"name": "market", "type": "SPOT", "engine": "simulated"}
    ready.answers["describejobqueues"] = {
        "jobQueues": [
            {"jobQueueName": "q", "computeEnvironmentOrder": [{"computeEnvironment": "arn:x/market"}]}
        ]
    }
    for status in ({**MACHINE, "environments": [simulated]}, {"machine": None, "environments": []}):
        ready.answers["Status"] = status
        windfall("run", "--detach", "--queue", "q", "--", "true")
        requirements = ready.params_of("submitjob")[-1]["containerOverrides"]["resourceRequirements"]
        assert {"type": "MEMORY", "value": "2048"} in requirements


def test_spot_without_checkpoints_is_tried_again_after_interruptions_alone(ready, windfall):
    ran = windfall("run", "--spot", "--detach", "--", "true")
    sent = ready.params_of("submitjob")[-1]
    assert sent["retryStrategy"]["attempts"] == 5
    assert [rule["action"] for rule in sent["retryStrategy"]["evaluateOnExit"]] == ["RETRY", "EXIT"]
    assert "without --checkpoint an interrupted job starts from the beginning; it is tried 5 times" in ran.err
    for options in (["--checkpoint"], ["--attempts", "2"]):
        ran = windfall("run", "--spot", *options, "--detach", "--", "true")
        assert "evaluateOnExit" not in ready.params_of("submitjob")[-1].get("retryStrategy", {})
        assert ran.err == ""


def test_spot_in_a_queue_without_spot_capacity_is_told(ready, windfall):
    ready.answers["describejobqueues"] = {
        "jobQueues": [{"jobQueueName": "q", "computeEnvironmentOrder": [{"computeEnvironment": "arn:x/own"}]}]
    }
    ready.answers["Status"] = {**MACHINE, "environments": [{"name": "own", "type": "EC2", "engine": None}]}
    ran = windfall("run", "--spot", "--queue", "q", "--detach", "--", "true")
    assert "queue q has no spot capacity, so the job runs on demand" in ran.err
    ran = windfall("run", "--deadline", "8h", "--work", "1h", "--queue", "q", "--detach", "--", "true")
    assert "queue q has no spot capacity, so the deadline saves nothing" in ran.err
    assert ran.err.count("no spot capacity") == 1


def test_a_job_waits_for_those_that_it_comes_after(ready, windfall):
    ready.answers["FindJobs"] = {"jobIds": [ID]}
    windfall("run", "--after", "prepare", "--after", ID, "--detach", "--", "true")
    (sent,) = ready.params_of("submitjob")
    assert sent["dependsOn"] == [{"jobId": ID}, {"jobId": ID}]
    ready.answers.update(FindJobs={"jobIds": []}, listjobs={"jobSummaryList": []})
    ran = windfall("run", "--after", "nothing", "--detach", "--", "true")
    assert ran.code == 1
    assert "there is no job 'nothing'" in ran.err


def test_an_image_has_a_definition_of_its_own_and_its_wishes_are_tags(fresh, windfall):
    windfall("run", "--image", "repo/train:2", "--runtime", "container", "--pull", "always", "--detach")
    (registered,) = fresh.params_of("registerjobdefinition")
    assert registered["containerProperties"]["image"] == "repo/train:2"
    sent = fresh.params_of("submitjob")[-1]
    assert sent["jobDefinition"] == registered["jobDefinitionName"]
    assert sent["jobDefinition"].startswith("windfall-run-repo-train-2-")
    assert sent["jobName"] == "train-2"
    assert sent["tags"] == {"windfall:runtime": "container", "windfall:pull": "always"}
    # Without a command the image's own is meant.
    assert "command" not in sent["containerOverrides"]


def test_names_of_definitions_tell_images_apart_and_are_allowed():
    names = {definition_name(image) for image in ("a/b:1", "a-b:1", "a/b-1", f"r/{'x' * 250}:1")}
    assert len(names) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", name) for name in names)
    assert definition_name(None) == definition_name("windfall/host") == "windfall-run"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "write the command after --, or name an image"),
        (["--runtime", "container", "--", "true"], "a container needs an image"),
        (["--pull", "never", "--", "true"], "a container needs an image"),
        (["--image", "i", "--dir", "/", "--", "true"], "which a container does not see"),
        (["--git", "https://host/code@main", "--dir", "/", "--", "true"], "leave one of them out"),
        (["--tag", "novalue", "--", "true"], "write it as KEY=VALUE"),
        (["--tag", "=v", "--", "true"], "write it as KEY=VALUE"),
        (["--gpus", "0", "--gpu-share", "0.5", "--", "true"], "--gpus 0 asks for no GPU, and --gpu-share is"),
    ],
)
def test_what_cannot_be_had_together_is_refused(ready, windfall, options, words):
    ran = windfall("run", *options)
    assert ran.code == 2
    assert words in ran.err
    assert ready.asked == []


@pytest.mark.parametrize(
    ("options", "gpus", "tags"),
    [
        (("--gpu-model", "H100", "--gpus", "2"), "2", {"windfall:gpu-model": "H100"}),
        (("--gpu-memory-gib", "40"), "1", {"windfall:gpu-memory-gib": "40"}),
        (("--on-gpu-oom", "larger"), "1", {"windfall:on-gpu-oom": "larger"}),
        (("--gpus", "1", "--tag", "windfall:profile=true"), "1", {"windfall:profile": "true"}),
        (
            ("--gpu-share", "0.5", "--tag", "windfall:gpu-share=0.1", "--tag", "team=a=b"),
            "1",
            {"windfall:gpu-share": "0.5", "team": "a=b"},
        ),
        (
            ("--gpu-share", "0.25", "--on-gpu-oom", "larger"),
            "1",
            {"windfall:gpu-share": "0.25", "windfall:on-gpu-oom": "larger"},
        ),
    ],
)
def test_gpus_of_a_kind_are_tags_and_ask_for_one_gpu(ready, windfall, options, gpus, tags):
    windfall("run", *options, "--detach", "--", "true")
    (sent,) = ready.params_of("submitjob")
    assert {"type": "GPU", "value": gpus} in sent["containerOverrides"]["resourceRequirements"]
    assert sent["tags"] == tags


def test_a_share_and_a_priority_are_submitted(ready, windfall):
    windfall("run", "--queue", "q", "--share", "blue", "--priority", "7", "--detach", "--", "true")
    [asked] = ready.params_of("submitjob")
    assert (asked["shareIdentifier"], asked["schedulingPriorityOverride"]) == ("blue", 7)


def test_a_directory_for_checkpoints_may_be_a_path(ready, windfall, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    windfall("run", "--checkpoint=./ck", "--detach", "--", "true")
    assert ready.params_of("submitjob")[-1]["tags"] == {"windfall:checkpoint": f"file://{tmp_path}/ck"}


@pytest.mark.parametrize("option", ["queue", "image", "share", "checkpoint", "git", "name", "gpu-model"])
def test_an_empty_value_is_not_the_default(ready, windfall, option):
    ran = windfall("run", "--clean", f"--{option}=", "--", "true")
    assert ran.code == 2
    assert f"--{option} is empty; give it a value" in ran.err
    assert ready.asked == []
