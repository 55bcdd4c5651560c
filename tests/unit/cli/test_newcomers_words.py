"""What people type who know other tools: `windfall run` takes it, or says what to write."""

from __future__ import annotations

import os

import pytest

from tests.unit.cli.fake_daemon import Error
from tests.unit.cli.test_following import ID
from tests.unit.cli.test_run import HARMLESS, MACHINE, fresh, own_directories, ready  # noqa: F401 (two are fixtures)
from windfall.cli.errors import BadUsage
from windfall.cli.jobs import exit_words
from windfall.cli.submitting import check_program


def submitted(daemon):
    return daemon.params_of("submitjob")[-1]


@pytest.mark.parametrize(
    ("written", "command", "place"),
    [
        (["--checkpoint", "sh", "train.sh"], ["sh", "train.sh"], "true"),
        (["--checkpoint", "sh", "-u", "--checkpoint", "y"], ["sh", "-u", "--checkpoint", "y"], "true"),
        (["--checkpoint", "--spot", "sh"], ["sh"], "true"),
        (["--name", "n", "--env", "A=1", "--checkpoint", "sh"], ["sh"], "true"),
        (["--checkpoint", "s3://bucket/x", "sh"], ["sh"], "s3://bucket/x"),
        (["--checkpoint", "/tmp/ck", "--", "sh"], ["sh"], "file:///tmp/ck"),
        (["--checkpoint=/tmp/ck", "sh", "x"], ["sh", "x"], "file:///tmp/ck"),
        (["sh", "--checkpoint", "x"], ["sh", "--checkpoint", "x"], None),
        (["--", "sh", "--checkpoint", "x"], ["sh", "--checkpoint", "x"], None),
    ],
)
def test_the_program_after_checkpoint_is_not_a_place(ready, windfall, written, command, place):  # noqa: F811 (a fixture)
    ran = windfall("run", "--detach", *written)
    assert ran.code == 0, ran.err
    sent = submitted(ready)
    assert sent["containerOverrides"]["command"] == command
    assert (sent.get("tags") or {}).get("windfall:checkpoint") == place


def test_short_options_of_other_tools(ready, windfall):  # noqa: F811 (a fixture)
    ran = windfall("run", "-d", "-e", "A=1", "--", "true")
    assert ran.out == f"{ID}\n"
    assert {"name": "A", "value": "1"} in submitted(ready)["containerOverrides"]["environment"]


@pytest.mark.parametrize(
    ("written", "seconds"), [("60", 60), ("90s", 90), ("10m", 600), ("2h", 7200), ("1D", 86400)]
)
def test_a_timeout_has_a_unit_or_is_in_seconds(ready, windfall, written, seconds):  # noqa: F811 (a fixture)
    windfall("run", "--timeout", written, "--detach", "--", "true")
    assert submitted(ready)["timeout"] == {"attemptDurationSeconds": seconds}


@pytest.mark.parametrize(
    ("written", "words"), [("1:00:00", "write it as 90s, 10m, 2h or 1d"), ("10", "60s is the least")]
)
def test_a_timeout_that_cannot_be_read(ready, windfall, written, words):  # noqa: F811 (a fixture)
    ran = windfall("run", "--timeout", written, "--", "true")
    assert ran.code == 2
    assert words in ran.err


def test_a_queue_that_does_not_exist_names_the_command_that_lists_them(ready, windfall):  # noqa: F811 (a fixture)
    ready.answers["submitjob"] = Error("ClientException", "Job queue nope does not exist")
    ran = windfall("run", "--queue", "nope", "--", "true")
    assert ran.err == "windfall: there is no queue 'nope'; `windfall queues` lists the queues there are\n"


def test_a_refusal_names_the_option_and_not_the_tag(ready, windfall):  # noqa: F811 (a fixture)
    ready.answers["submitjob"] = Error(
        "ClientException", "windfall:budget-usd needs a price, or leave it out"
    )
    ran = windfall("run", "--budget-usd", "1", "--", "true")
    assert ran.err == "windfall: --budget-usd needs a price, or leave it out\n"


@pytest.mark.parametrize(("usd", "made"), [(0.0, False), (0.5, True)])
def test_a_budget_without_a_price_makes_no_queue(fresh, windfall, usd, made):  # noqa: F811 (a fixture)
    fresh.answers["Status"] = {
        **MACHINE,
        "engine": "local",
        "prices": {"usdGpuHour": 0.0, "usdVcpuHour": usd},
    }
    ran = windfall("run", "--budget-usd", "1", "--detach", "--", "true")
    assert ("createjobqueue" in {asked.operation for asked in fresh.asked}) is made
    if not made:
        assert {asked.operation for asked in fresh.asked} <= HARMLESS
        assert "--budget-usd needs a price" in ran.err
        assert "--usd-vcpu-hour" in ran.err


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        ("train.py", 0o644, "write: windfall run -- python train.py --lr 1"),
        ("a b.sh", 0o755, "write: windfall run -- bash 'a b.sh' --lr 1"),
        ("tool", 0o755, "write: windfall run -- ./tool --lr 1"),
        ("tool", 0o644, "./tool --lr 1, after `chmod +x tool`"),
    ],
)
def test_a_script_without_its_program_is_refused_with_what_to_write(tmp_path, name, mode, words):
    (tmp_path / name).touch()
    (tmp_path / name).chmod(mode)
    with pytest.raises(BadUsage) as refused:
        check_program((name, "--lr", "1"), str(tmp_path), os.environ["PATH"])
    assert words in str(refused.value)


def test_a_line_of_shell_in_one_word_is_refused(ready, windfall):  # noqa: F811 (a fixture)
    ran = windfall("run", "--", "echo hi && echo there")
    assert ran.code == 2
    assert "windfall run -- sh -c 'echo hi && echo there'" in ran.err
    assert ready.params_of("submitjob") == []


def test_programs_that_may_be_there_are_left_to_the_daemon(tmp_path):
    check_program(("sh", "-c", "x"), str(tmp_path), os.environ["PATH"])
    check_program(("./missing",), str(tmp_path), os.environ["PATH"])
    check_program(("missing",), str(tmp_path), os.environ["PATH"])
    check_program(("missing",), str(tmp_path), None)
    check_program(("x" * 5000, "y"), str(tmp_path), os.environ["PATH"])


@pytest.mark.parametrize("words", [("help",), ("help", "run"), ("help", "ps")])
def test_help_is_a_command_too(windfall, words):
    ran = windfall(*words)
    assert ran.code == 0
    assert ran.out == windfall(*words[1:], "--help").out


def test_help_of_a_command_that_does_not_exist(windfall):
    ran = windfall("help", "rum")
    assert (ran.code, ran.err) == (2, "windfall: there is no command 'rum'; did you mean `windfall run`?\n")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "exit code 1"),
        (128, "exit code 128"),
        (137, "exit code 137 (SIGKILL)"),
        (143, "exit code 143 (SIGTERM)"),
        (139, "exit code 139 (SIGSEGV)"),
        (255, "exit code 255"),
    ],
)
def test_an_exit_code_names_its_signal(code, words):
    assert exit_words(code) == words


def test_stopping_by_a_name_that_several_live_jobs_have_names_the_others(daemon, windfall):
    first, second, ended = (f"{n}0000000-0000-4000-8000-000000000000" for n in (1, 2, 3))
    states = {first: "RUNNING", second: "RUNNABLE", ended: "FAILED"}
    daemon.answers.update(
        FindJobs={"jobIds": [first, second, ended]},
        describejobs=lambda asked: {
            "jobs": [{"jobId": job, "jobName": "train", "status": states[job]} for job in asked["jobs"]]
        },
        terminatejob={},
    )
    ran = windfall("kill", "train")
    assert ran.out == f"{first} is being terminated\n"
    assert ran.err == (
        f"windfall: train means the newest job of that name; others go on, stop them by id: {second}\n"
    )
    assert windfall("kill", first).err == ""
    assert [one["jobId"] for one in daemon.params_of("terminatejob")] == [first, first]


@pytest.mark.parametrize("words", [("jobs", "-a"), ("logs", ID, "-n", "1")])
def test_short_options_of_listing_commands(ready, windfall, words):  # noqa: F811 (a fixture)
    ready.answers.update(
        describejobqueues={"jobQueues": []}, Owners={"owners": {}}, FindJobs={"jobIds": [ID]}
    )
    ran = windfall(*words)
    assert "no such option" not in ran.err
