"""The sandbox's command line, and the script that becomes the job."""

from __future__ import annotations

import json
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.credentials import JobUser
from windfall.agent.sandbox import DEFAULT_PATH, SandboxPlan, SandboxTools, job_script, sandbox_command

NOBODY = JobUser("nobody", 65534, 65534, (65534,), drop=True)
MYSELF = JobUser("me", 1000, 1000, (1000,), drop=False)
PLAN = SandboxPlan("/data/attempts/a", "/data/attempts/a.tmp", 64, ("/data",), ("/cg/memory/a/cgroup.procs",))


def test_root_joins_the_cgroup_first_and_drops_its_rights_last():
    command = sandbox_command(SandboxTools("/usr/bin/bwrap", "/usr/bin/setpriv"), NOBODY, PLAN)
    assert command[:2] == ["/bin/sh", "-c"]
    joined = command.index("/cg/memory/a/cgroup.procs")
    wrapped = command.index("/usr/bin/bwrap")
    dropped = command.index("/usr/bin/setpriv")
    assert joined < wrapped < dropped
    assert command[-2:] == ["/bin/sh", "-s"]
    assert "--die-with-parent" not in command
    assert " ".join(command).count("--size 67108864 --tmpfs /dev/shm") == 1


def test_the_jobs_directory_appears_again_after_its_surroundings_are_hidden():
    command = " ".join(sandbox_command(SandboxTools("/usr/bin/bwrap", None), MYSELF, PLAN))
    assert command.index("--tmpfs /data ") < command.index("--bind /data/attempts/a /data/attempts/a ")
    assert "setpriv" not in command


def test_what_lies_between_can_be_passed_by_the_job():
    plan = SandboxPlan("/tmp/a/b/c", "/data/attempts/a.tmp", None, ("/data",), ())
    command = " ".join(sandbox_command(SandboxTools("/usr/bin/bwrap", None), MYSELF, plan))
    between = "--perms 0755 --dir /tmp/a --perms 0755 --dir /tmp/a/b --bind /tmp/a/b/c /tmp/a/b/c"
    assert command.index("--bind /data/attempts/a.tmp /tmp") < command.index(between)


def test_a_directory_around_the_hidden_one_does_not_uncover_it():
    for directory in ("/", "/data-of-others", "/home/me"):
        plan = SandboxPlan(directory, "/data/attempts/a.tmp", None, ("/data",), ())
        command = " ".join(sandbox_command(SandboxTools("/usr/bin/bwrap", None), MYSELF, plan))
        assert f"--bind {directory} {directory}" not in command
        assert f"--chdir {directory} " in command


def run_script(argv: list[str], environment: dict[str, str]) -> dict[str, object]:
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    script = job_script([sys.executable, "-c", code, *argv], environment)
    answer = subprocess.run(
        ["/bin/sh", "-s"],
        input=script,
        env={"PATH": DEFAULT_PATH},
        capture_output=True,
        check=True,
        timeout=30,
    )
    arguments, seen = json.loads(answer.stdout)
    return {"argv": arguments, "environment": seen}


def test_arguments_and_variables_arrive_as_they_are():
    environment = {
        "PATH": DEFAULT_PATH,
        "A": 'it\'s $X `y` "z"\n\\',
        "odd.name": "kept",
        "UID": "5",
        "EMPTY": "",
    }
    seen = run_script(["a b", "", "$HOME", "'"], environment)
    assert seen["argv"] == ["a b", "", "$HOME", "'"]
    got = seen["environment"]
    assert isinstance(got, dict)
    assert {name: got.get(name) for name in environment} == environment


@given(st.text(alphabet=st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=30))
def test_no_value_escapes_its_quotes(value: str):
    script = job_script(["x", value], {"A": value}).decode()
    assert script.endswith(" < /dev/null\n")
    assert script.startswith("export A=")
