"""Who an attempt runs as: accounts, numbers without one, and what is refused."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.agent.stories import attempt_of
from windfall.agent.credentials import JobUser, check_becoming, user_to_run_as
from windfall.agent.directories import PrivateDirectories
from windfall.agent.errors import CannotStart
from windfall.agent.journal import Journal, read_journal
from windfall.agent.machine import Machine
from windfall.agent.messages import Start
from windfall.agent.preparation import intend, job_user, make_directories
from windfall.agent.records import Intended
from windfall.agent.settings import AgentSettings
from windfall.agent.stages import Story
from windfall.jobs.job_users import RunAs

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")
NOBODY = JobUser("nobody", 65534, 65534, (65534,), drop=True)


def a_machine(root: Path) -> Machine:
    return Machine(AgentSettings(str(root / "agent"), str(root)), 2.0, 1024, [], NOBODY, None, None, [])


def a_start(run_as: RunAs | None) -> Start:
    return Start("t", "task", ["true"], {}, None, "/dev/null", 1.0, 64, [], run_as=run_as)


@needs_root
def test_an_account_has_its_own_groups():
    user = user_to_run_as(RunAs(account="daemon"))
    entry = pwd.getpwnam("daemon")
    assert (user.uid, user.gid, user.drop) == (entry.pw_uid, entry.pw_gid, True)
    assert set(user.groups) == {entry.pw_gid, *os.getgrouplist("daemon", entry.pw_gid)}


@needs_root
def test_a_number_is_a_user_and_its_group_and_nothing_more():
    assert user_to_run_as(RunAs(uid=987_654)) == JobUser("987654", 987_654, 987_654, (), drop=True)


@needs_root
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (RunAs(account="no-such-account"), 'there is no user "no-such-account"'),
        (RunAs(account="root"), 'jobs cannot run as "root"'),
        (RunAs(uid=0), "0 would be the tenant's user, and is the user root"),
        (RunAs(uid=65534), "is the user nobody on this machine: start the daemon with another range"),
    ],
)
def test_who_a_job_must_not_be_is_refused(wanted: RunAs, words: str):
    with pytest.raises(CannotStart, match=words):
        user_to_run_as(wanted)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can run jobs as any user")
def test_an_agent_that_is_not_root_runs_jobs_as_itself_alone():
    with pytest.raises(CannotStart, match="only an agent that is root"):
        user_to_run_as(RunAs(uid=987_654))
    with pytest.raises(CannotStart, match="cannot run as"):
        user_to_run_as(RunAs(account="daemon"))


@needs_root
def test_the_user_is_known_to_the_next_agent_whatever_becomes_of_the_account(tmp_path: Path):
    machine, start = a_machine(tmp_path), a_start(RunAs(account="daemon"))
    path = str(tmp_path / "journal")
    journal = Journal(path, "boot")
    journal.rewrite(1, [])
    journal.add(intend(start, machine, 1))
    journal.flush()
    (story,) = read_journal(path).stories.values()
    assert job_user(attempt_of(story), machine).name == "daemon"


def test_an_account_that_is_gone_is_told_when_the_attempt_is_to_start_and_nothing_is_made(tmp_path: Path):
    machine, start = a_machine(tmp_path), a_start(RunAs(account="no-such-account"))
    attempt = attempt_of(Story(intend(start, machine, 1), order=start))
    with pytest.raises(CannotStart, match='there is no user "no-such-account"'):
        make_directories(attempt, start, machine, PrivateDirectories(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_an_intent_of_an_earlier_version_means_the_agents_own_job_user(tmp_path: Path):
    intended = Intended("t", "task", "/dev/null", [], 64, 1.0, False, 1)
    assert job_user(attempt_of(Story(intended)), a_machine(tmp_path)) == NOBODY


@needs_root
def test_an_agent_that_may_not_become_the_job_user_says_so_at_its_start():
    check_becoming(NOBODY)
    look = "from windfall.agent.credentials import *; check_becoming(JobUser('pat', 65534, 65534, (), drop=True))"
    command = ["setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-all", sys.executable, "-c", look]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "jobs cannot be run as pat: " in done.stderr
    assert "SETUID and SETGID, or say --job-user root" in done.stderr
