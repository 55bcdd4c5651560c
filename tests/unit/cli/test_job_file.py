"""Options of `windfall run` in a file and in the user's defaults, and several jobs in one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.fake_daemon import Error
from tests.unit.cli.test_run import ID, fresh, ready, variables

__all__ = ["fresh", "ready"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory of the user, and an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def a_file(place, text, name="job.toml"):
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)
    return str(place / name)


def defaults(place, text):
    a_file(place.parent, text, "home/.config/windfall/run.toml")


def sent(ready):
    return ready.params_of("submitjob")[-1]


def amounts(asked):
    return {each["type"]: each["value"] for each in asked["containerOverrides"]["resourceRequirements"]}


def test_each_option_is_a_key(ready, windfall, place):
    (place / "code").mkdir()
    file = a_file(
        place,
        """
        command = "python train.py --lr 0.1"
        name = "trained"
        queue = "q"
        gpus = 2
        vcpus = 4
        memory = "16G"
        array = 3
        timeout = 60
        attempts = 5
        priority = 7
        share = "blue"
        spot = true
        checkpoint = true
        budget_usd = 12.5
        gpu-model = "H100"
        dir = "code"
        detach = true
        after = "prepare"
        env = { A = "1", B = "x=y", C = 3 }
        tag = { team = "vision" }
        """,
    )
    ready.answers["FindJobs"] = {"jobIds": [ID]}
    assert windfall("run", "--file", file).out == f"{ID}\n"
    asked = sent(ready)
    assert (asked["jobName"], asked["jobQueue"], asked["shareIdentifier"]) == ("trained", "q", "blue")
    assert asked["containerOverrides"]["command"] == ["python", "train.py", "--lr", "0.1"]
    assert amounts(asked) == {"VCPU": "4", "MEMORY": "16384", "GPU": "2"}
    assert (asked["arrayProperties"], asked["timeout"]) == ({"size": 3}, {"attemptDurationSeconds": 60})
    assert asked["retryStrategy"] == {"attempts": 5}
    assert asked["schedulingPriorityOverride"] == 7
    assert asked["dependsOn"] == [{"jobId": ID}]
    assert asked["parameters"] == {"windfall-dir": str(place / "code")}
    assert {name: variables(asked)[name] for name in "ABC"} == {"A": "1", "B": "x=y", "C": "3"}
    assert asked["tags"] == {
        "team": "vision",
        "windfall:checkpoint": "true",
        "windfall:budget-usd": "12.5",
        "windfall:gpu-model": "H100",
    }


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(ready, windfall, place):
    defaults(place, 'vcpus = 2\nmemory = "2G"\ngpus = 1\nenv = { A = "default", B = "default" }')
    file = a_file(place, 'memory = "4G"\ngpus = 2\ncommand = ["a"]\nenv = { A = "file" }\nspot = true')
    windfall("run", "--file", file, "--gpus", "3", "--env", "C=line", "--detach", "--", "b")
    asked = sent(ready)
    assert amounts(asked) == {"VCPU": "2", "MEMORY": "4096", "GPU": "3"}
    assert {name: variables(asked)[name] for name in "ABC"} == {"A": "file", "B": "default", "C": "line"}
    assert asked["containerOverrides"]["command"] == ["b"]
    assert asked["jobQueue"] == "windfall-spot"
    windfall("run", "--detach", "--", "b")
    assert amounts(sent(ready)) == {"VCPU": "2", "MEMORY": "2048", "GPU": "1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memroy = '1G'", "there is no key 'memroy'; did you mean 'memory'?"),
        ("zzz = 1", "there is no key 'zzz'; there are after, array,"),
        ("data = '/x'", "there is no key 'data'"),
        ("memory = '16'", "memory: '16' is not an amount of memory"),
        ("memory = true", "memory: true is not a value"),
        ("gpus = -1", "gpus: -1 is not in the range"),
        ("gpus = [1]", "gpus: it takes one value"),
        ("spot = 'yes'", "spot: it must be true or false"),
        ("env = ['A=1']", "env: write it as a table"),
        ("after = [1]", "after: it must be a text or a list of texts"),
        ("command = 'a \\'b'", "is not a command"),
        ("command", "is not a TOML file"),
        ("job = 1", "write each job as a table [[job]]"),
        ("name = 'x'\n[[job]]\ncommand = 'a'", "name says something about one job"),
        ("[[job]]\ncommand = 'a'\n[[job]]\ngpsu = 1", "job 2: there is no key 'gpsu'; did you mean 'gpus'?"),
        ("[[job]]\ncommand = 'a'\n[[job]]\ncommand = 'a'", "two jobs are called 'a'"),
        ("[[job]]\ncommand = 'a'\nafter = 'b'\n[[job]]\ncommand = 'b'\nafter = 'a'", "wait for one another"),
        ("[[job]]\ncommand = 'a'\n[[job]]\ngpus = 1", "there is nothing to run"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_nothing_is_asked(ready, windfall, place, text, words):
    text = text.replace("'", '"') if "\\'" not in text else 'command = "a \'b"'
    ran = windfall("run", "--file", a_file(place, text))
    assert ran.code == 2, ran
    assert words in ran.err
    assert ready.asked == []


def test_wrong_defaults_name_their_file(ready, windfall, place):
    defaults(place, "command = 'a'")
    ran = windfall("run", "--", "true")
    assert ran.code == 2
    assert "windfall/run.toml: command is about one job and cannot be a default" in ran.err


PIPELINE = """
queue = "q"
env = { SEED = "1" }

[[job]]
name = "train"
command = "python train.py"
memory = "8G"
after = ["prepare", "earlier"]

[[job]]
command = "python prepare.py"
"""


@pytest.fixture
def numbered(ready):
    """A daemon that gives each job an id of its own, and knows a job called `earlier`."""

    def submit(asked):
        return {"jobId": f"id-of-{asked['jobName']}", "jobName": asked["jobName"], "jobArn": "arn"}

    ready.answers.update(submitjob=submit, FindJobs={"jobIds": [ID]}, terminatejob={})
    return ready


def test_several_jobs_are_submitted_in_the_order_of_their_dependencies(numbered, windfall, place):
    ran = windfall("run", "--file", a_file(place, PIPELINE))
    assert ran.code == 0, ran
    assert ran.out == "id-of-prepare  prepare\nid-of-train  train\n"
    prepare, train = numbered.params_of("submitjob")
    assert "dependsOn" not in prepare
    assert train["dependsOn"] == [{"jobId": ID}, {"jobId": "id-of-prepare"}]
    assert amounts(train)["MEMORY"] == "8192"
    assert variables(train)["SEED"] == variables(prepare)["SEED"] == "1"
    as_json = json.loads(windfall("run", "--json", "--file", a_file(place, PIPELINE)).out)
    assert [job["jobName"] for job in as_json["jobs"]] == ["prepare", "train"]


def test_a_file_whose_job_is_refused_leaves_none_running(numbered, windfall, place):
    accept = numbered.answers["submitjob"]

    def submit(asked):
        refused = asked["jobName"] == "train"
        return Error("ClientException", "too large") if refused else accept(asked)

    numbered.answers["submitjob"] = submit
    ran = windfall("run", "--file", a_file(place, PIPELINE))
    assert ran.code == 1
    assert "train: too large; 1 submitted before it were stopped" in ran.err
    assert [one["jobId"] for one in numbered.params_of("terminatejob")] == ["id-of-prepare"]


def test_several_jobs_can_be_rehearsed(numbered, windfall, place):
    ran = windfall("run", "--dry-run", "--file", a_file(place, PIPELINE))
    assert ran.out.index("name        prepare") < ran.out.index("name        train")
    as_json = json.loads(windfall("run", "--dry-run", "--json", "--file", a_file(place, PIPELINE)).out)
    assert [job["jobName"] for job in as_json["jobs"]] == ["prepare", "train"]
    assert numbered.params_of("submitjob") == []


@pytest.mark.parametrize("more", [["--name", "x"], ["--", "true"]])
def test_what_is_for_one_job_is_refused_for_several(numbered, windfall, place, more):
    ran = windfall("run", "--file", a_file(place, PIPELINE), *more)
    assert ran.code == 2
    assert "has 2 jobs" in ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('env = {"A=B" = "x"}', "env: 'A=B' is not a name"),
        ('env = {"" = "x"}', "env: '' is not a name"),
        ("env = {A = {B = 1}}", "env: A must be a text or a number"),
        ("env = {A = 1979-05-27}", "env: A must be a text or a number"),
        ('tag = {"a=b" = "x"}', "tag: 'a=b' is not a name"),
        ("checkpoint = 1", "checkpoint: it must be true, false or a URI"),
        ('dir = ""', "dir: it must be the path of a directory"),
        ("dir = 7", "dir: it must be the path of a directory"),
    ],
)
def test_a_value_is_not_bent_into_another(ready, windfall, place, text, words):
    ran = windfall("run", "--file", a_file(place, f'command = "true"\n{text}\n'))
    assert ran.code == 2
    assert words in ran.err
    assert ready.asked == []


def test_a_home_directory_of_somebody_else_has_no_defaults_for_us(ready, windfall, place, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    ran = windfall("run", "--detach", "--", "true")
    assert (ran.code, ran.out.strip()) == (0, ID)
