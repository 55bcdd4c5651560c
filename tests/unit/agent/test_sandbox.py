"""The sandbox's command line, and the script that becomes the job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.credentials import JobUser
from windfall.agent.sandbox import (
    DEFAULT_PATH,
    SandboxPlan,
    SandboxTools,
    find_tools,
    job_script,
    sandbox_command,
    without_bubblewrap,
)
from windfall.agent.sandbox_mounts import Shown

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


def test_a_directory_below_tmp_that_holds_the_hidden_one_does_not_uncover_it():
    plan = SandboxPlan("/tmp/me", "/tmp/me/data/attempts/a.tmp", None, ("/tmp/me/data",), ())
    command = " ".join(sandbox_command(SandboxTools("/usr/bin/bwrap", None), MYSELF, plan))
    shown = "--bind /tmp/me /tmp/me --tmpfs /tmp/me/data "
    assert command.index("--tmpfs /tmp/me/data ") < command.index(shown)


def test_what_a_job_sees_of_the_hosts_tmp_does_not_uncover_what_is_hidden_there():
    shown = (Shown("/tmp/me", "1:2"), Shown("/tmp/link", target="me"))
    plan = SandboxPlan("/tmp/me/data/attempts/a", "/tmp/me/data/attempts/a.tmp", None, ("/tmp/me/data",), ())
    command = " ".join(
        sandbox_command(
            SandboxTools("/usr/bin/bwrap", None), MYSELF, msgspec.structs.replace(plan, shown=shown)
        )
    )
    order = ["--bind /tmp/me/data/attempts/a.tmp /tmp ", "--bind /tmp/me /tmp/me --tmpfs /tmp/me/data "]
    order += ["--symlink me /tmp/link ", "--bind /tmp/me/data/attempts/a /tmp/me/data/attempts/a "]
    assert [command.index(words) for words in order] == sorted(command.index(words) for words in order)


@pytest.mark.parametrize("made_by", ["bubblewrap", "namespaces"])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("shown", [False, True])
def test_a_directory_that_was_replaced_after_it_was_checked_is_not_given_to_the_job(
    tmp_path, require, made_by, replaced, shown
):
    require(os.geteuid() == 0, "only root makes a sandbox for another user")
    tools = find_tools(NOBODY) if made_by == "bubblewrap" else without_bubblewrap(shutil.which("setpriv"))
    require(tools is not None, "no sandbox can be made here")
    mine, secret = tmp_path / "mine", tmp_path / "secret"
    for place in (mine, secret):
        place.mkdir()
    status = mine.stat()
    if replaced:
        mine.rename(tmp_path / "elsewhere")
        mine.symlink_to(secret)
    identity = f"{status.st_dev}:{status.st_ino}"
    if shown:
        plan = SandboxPlan("/usr", "/var/tmp", None, (), (), shown=(Shown(str(mine), identity),))
    else:
        plan = SandboxPlan(str(mine), "/var/tmp", None, (), (), identity=identity)
    ran = subprocess.run(
        sandbox_command(tools, NOBODY, plan),
        input=job_script(["echo", "started"], {"PATH": DEFAULT_PATH}),
        env={"PATH": DEFAULT_PATH},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout) == ((126, b"") if replaced else (0, b"started\n")), ran.stderr


def run_script(argv: list[str], environment: dict[str, str]) -> dict[str, object]:
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    script = job_script([sys.executable, "-c", code, *argv], environment)
    answer = subprocess.run(
        ["/bin/sh", "-s"],
        input=script,
        env={"PATH": DEFAULT_PATH},
        capture_output=True,
        check=True,
        timeout=120,
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
