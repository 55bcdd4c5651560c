"""Whether a process of an earlier agent still runs: numbers are used again, and an agent may lack what asking takes."""

from __future__ import annotations

import os
import resource
import subprocess
import threading

import pytest

from windfall.agent.recovery import pidfd_of


def test_a_process_that_runs_can_be_watched():
    pidfd = pidfd_of(os.getpid())
    assert pidfd >= 0
    os.close(pidfd)


def test_a_number_that_nobody_has_is_no_process():
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert pidfd_of(ended.pid) == -1


def test_a_number_that_a_thread_has_now_is_no_process():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert thread.native_id not in (None, os.getpid())
        assert pidfd_of(thread.native_id) == -1
    finally:
        done.set()
        thread.join()


def test_an_agent_without_descriptors_does_not_take_it_for_gone():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            pidfd_of(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
