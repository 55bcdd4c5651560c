"""The data directory: closed to others, held by one daemon, and honest about where that one listens."""

from __future__ import annotations

import os

import pytest

from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import AlreadyRunning, DaemonError


def test_everything_but_the_way_through_is_closed(tmp_path):
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    directory.prepare()
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.root.iterdir()}
    passable = {"attempts", "simulated"}
    assert modes == {name: 0o711 if name in passable else 0o700 for name in modes}
    assert modes.keys() == {"store", "logs", "agent", "secrets", *passable}
    assert directory.simulated_agent.stat().st_mode & 0o777 == 0o700
    assert directory.simulated_attempts.stat().st_mode & 0o777 == 0o711
    assert directory.root.stat().st_mode & 0o777 == 0o711


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(tmp_path):
    directory = DataDirectory(tmp_path)
    lock = directory.lock()
    with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}.*windfall down"):
        directory.lock()
    os.close(lock)
    os.close(directory.lock())


def test_a_place_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DaemonError, match="--data DIR"):
        DataDirectory(tmp_path / "file" / "below").prepare()


def test_the_address_is_read_as_it_was_written(tmp_path):
    directory = DataDirectory(tmp_path)
    assert directory.read_address() is None
    directory.write_address("http://127.0.0.1:1")
    assert directory.read_address() == "http://127.0.0.1:1"


def test_daemons_of_one_store_share_a_directory_and_nobody_else_does(tmp_path):
    directory = DataDirectory(tmp_path)
    locks = [directory.share("store-a"), directory.share("store-a")]
    with pytest.raises(AlreadyRunning, match="with another store"):
        directory.share("store-b")
    with pytest.raises(
        AlreadyRunning, match=rf"another Windfall daemon \(pid {os.getpid()}\) uses "
    ) as refused:
        directory.lock()
    assert "store-a" not in str(refused.value)
    assert "\n" not in str(refused.value)
    os.close(locks[0])
    with pytest.raises(AlreadyRunning):
        directory.share("store-b")
    os.close(locks[1])
    os.close(directory.share("store-b"))
    alone = directory.lock()
    with pytest.raises(AlreadyRunning):
        directory.share("store-b")
    os.close(alone)


def test_the_addresses_of_all_who_live_are_known(tmp_path):
    directory = DataDirectory(tmp_path)
    assert directory.other_addresses() == []
    one, two = directory.add_address("one", "http://h:1"), directory.add_address("two", "http://h:2")
    assert directory.other_addresses() == ["http://h:1", "http://h:2"]
    assert not any(map(directory.is_gone, ("one", "two", "never-was", "")))
    os.close(one)
    assert directory.is_gone("one")
    three = directory.add_address("three", "http://h:3")
    assert directory.other_addresses() == ["http://h:3", "http://h:2"]
    directory.remove_address("three")
    assert directory.other_addresses() == ["http://h:2"]
    os.close(two)
    os.close(three)
