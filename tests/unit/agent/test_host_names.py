"""What a training job's sandbox reads in /etc/hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.agent.host_names import HOSTS, training_hosts, write_hosts
from windfall.jobs.staging import Staging

SEVERAL = (("algo-1", "127.64.0.1"), ("algo-2", "127.64.0.2"))


def test_only_training_jobs_have_names_for_hosts():
    assert training_hosts(None) == training_hosts(Staging()) == ()
    assert training_hosts(Staging(wants_ml_root=True)) == (("algo-1", "127.0.0.1"),)
    assert training_hosts(Staging(wants_ml_root=True, hosts=SEVERAL)) == SEVERAL


@pytest.mark.skipif(not Path(HOSTS).is_file() or Path(HOSTS).is_symlink(), reason=f"this host has no {HOSTS}")
def test_the_names_of_all_hosts_come_after_the_machines_own(tmp_path):
    path = write_hosts(str(tmp_path), SEVERAL)
    assert path is not None
    lines = (tmp_path / "hosts").read_text().splitlines()
    assert lines[-2:] == ["127.64.0.1 algo-1", "127.64.0.2 algo-2"]
    assert len(lines) > 2
