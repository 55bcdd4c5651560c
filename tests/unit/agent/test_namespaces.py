"""A sandbox without bubblewrap keeps apart what one of bubblewrap does, and ends as its job does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.agent.credentials import JobUser
from windfall.agent.namespaces import NotPermitted, parse
from windfall.agent.sandbox import DEFAULT_PATH, SandboxPlan, job_script, sandbox_command, without_bubblewrap

MYSELF = JobUser("me", os.getuid(), os.getgid(), tuple(os.getgroups()), drop=False)


@pytest.fixture
def run(require, tmp_path):
    """Run a shell command in a sandbox with what is said of it."""

    def started(command: str, **plan) -> subprocess.CompletedProcess[str]:
        fields = {"tmp_directory": None, "shared_memory_mib": None, "hide": (), "cgroup_files": (), **plan}
        words = sandbox_command(without_bubblewrap(None), MYSELF, SandboxPlan(str(tmp_path), **fields))
        script = job_script(["sh", "-c", command], {"PATH": DEFAULT_PATH, "SAID": "it's so"})
        environment = {"PATH": DEFAULT_PATH}
        return subprocess.run(words, input=script, env=environment, capture_output=True, check=False)

    probe = started("exit 9")
    require(probe.returncode == 9, f"namespaces are not permitted here: {probe.stderr.decode().strip()}")

    def answered(command: str, **plan) -> tuple[int, list[str]]:
        ended = started(command, **plan)
        return ended.returncode, (ended.stdout + ended.stderr).decode().splitlines()

    return answered


def test_it_ends_as_its_job_does(run):
    assert run("exit 3") == (3, [])
    assert run("kill -TERM $$") == (128 + signal.SIGTERM, [])
    assert run("kill -KILL $$") == (128 + signal.SIGKILL, [])


def test_the_job_has_its_environment_its_directory_and_its_user(run, tmp_path):
    code, said = run('echo "$SAID"; pwd; id -u; id -g; cat; echo x >&2; touch here')
    assert (code, said) == (0, ["it's so", str(tmp_path), str(os.getuid()), str(os.getgid()), "x"])
    assert (tmp_path / "here").exists()


def test_processes_and_ipc_are_its_own(run):
    (code, (mine, others)) = run("echo $$; ls /proc | grep -c '^[0-9]'")
    assert (code, int(mine) < 10, int(others) < 10) == (0, True, True)
    assert run("readlink /proc/self/ns/ipc")[1] != [str(Path("/proc/self/ns/ipc").readlink())]
    assert run(f"kill -0 {os.getpid()}")[0] != 0


def test_shared_memory_has_the_size_that_was_asked_for(run):
    (code, (size,)) = run("df -k --output=size /dev/shm | tail -1", shared_memory_mib=3)
    assert (code, size.strip()) == (0, "3072")


def test_what_is_hidden_cannot_be_seen_and_tmp_is_its_own(run, tmp_path, tmp_path_factory):
    hidden, own = tmp_path_factory.mktemp("hidden"), tmp_path_factory.mktemp("own")
    (hidden / "keys").write_text("secret")
    assert run(f"cat {hidden}/keys", hide=(str(hidden),))[0] != 0
    assert (hidden / "keys").read_text() == "secret"
    (own / "mine").write_text("")
    code, said = run("ls /tmp; touch /tmp/new", tmp_directory=str(own))
    assert (code, "mine" in said, (own / "new").exists()) == (0, True, True)


def test_a_directory_appears_at_a_path_that_the_host_does_not_have(run, tmp_path):
    (tmp_path / "ml").mkdir()
    for path in ("/opt/windfall-not-there/ml", "/windfall-not-there"):
        assert (
            run(f"touch {path}/model; ls /usr/bin | grep -c .", binds=((str(tmp_path / "ml"), path),))[0] == 0
        )
        assert [one.name for one in (tmp_path / "ml").iterdir()] == ["model"]
        assert not Path(path).exists()
        (tmp_path / "ml/model").unlink()


def test_names_of_hosts_resolve_and_cannot_be_changed(run, tmp_path, require):
    known = Path("/etc/hosts")
    require(known.is_file() and not known.is_symlink(), "there is no /etc/hosts to cover")
    hosts = tmp_path / "hosts"
    hosts.write_text("127.64.3.2 algo-2\n")
    code, said = run(
        f"{sys.executable} -c 'import socket; print(socket.gethostbyname(\"algo-2\"))'; echo x > /etc/hosts",
        hosts_file=str(hosts),
    )
    assert said[0] == "127.64.3.2"
    assert code != 0
    assert hosts.read_text() == "127.64.3.2 algo-2\n"


def test_no_new_privileges_can_be_had(run):
    assert run("grep NoNewPrivs /proc/self/status")[1] == ["NoNewPrivs:\t1"]


def test_what_is_left_running_goes_on_and_holds_nothing_up(run, tmp_path):
    os.mkfifo(tmp_path / "told")
    assert run("(read x < told; echo $x > done) >/dev/null 2>&1 & exit 0")[0] == 0
    (tmp_path / "told").write_text("heard\n")


def test_an_option_that_there_is_not_is_refused():
    with pytest.raises(NotPermitted, match="there is no option --unshare-all"):
        parse(["--unshare-all", "--", "true"])
    assert parse(["--chdir", "/", "--", "a", "--", "b"]) == ([("--chdir", ("/",))], ["a", "--", "b"])
