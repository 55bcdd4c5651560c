"""A daemon that cannot start says why in one line, and one that is told to stop waits for nobody."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from windfall.daemon.errors import DaemonError
from windfall.daemon.serving import Ready, run_to_its_end, serve, unless_stopped
from windfall.daemon.settings import read_settings


def why_not(data: Path, **options: object) -> str:
    """What a daemon says that does not start with this directory."""
    settings = read_settings({"data": data, "port": 0, **options}, environment={})

    def unexpected(_: Ready) -> None:
        pytest.fail("it has started")

    with pytest.raises(DaemonError) as refused:
        serve(settings, unexpected)
    text = str(refused.value)
    assert "\n" not in text
    return text


@contextmanager
def no_room() -> Iterator[None]:
    """Files of this process cannot grow, as if every disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_without_room_is_told_with_the_directory(tmp_path: Path):
    with no_room():
        text = why_not(tmp_path)
    assert text.startswith(f"cannot use {tmp_path}")
    assert "the data directory needs free space" in text


def _a_directory(keys: Path) -> None:
    keys.mkdir()


def _nonsense(keys: Path) -> None:
    keys.write_text("{")
    keys.chmod(0o600)


def _open_to_all(keys: Path) -> None:
    keys.write_text("{}")
    keys.chmod(0o644)


@pytest.mark.parametrize("spoil", [_a_directory, _nonsense, _open_to_all])
def test_keys_that_cannot_be_read_are_told_with_their_file(tmp_path: Path, spoil: Callable[[Path], None]):
    spoil(tmp_path / "keys.json")
    assert str(tmp_path / "keys.json") in why_not(tmp_path)


def test_a_damaged_store_is_told_with_its_file(tmp_path: Path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "windfall.db").write_bytes(b"no database" * 1000)
    assert str(tmp_path / "store" / "windfall.db") in why_not(tmp_path)


def test_a_directory_that_is_none_is_told(tmp_path: Path):
    (tmp_path / "file").touch()
    assert "choose another with --data DIR" in why_not(tmp_path / "file")


def test_a_port_that_is_taken_is_told_and_the_directory_is_free_again(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for _ in range(2):
            assert f"cannot listen on 127.0.0.1:{port}" in why_not(tmp_path, port=port)


def test_whoever_is_told_to_stop_does_not_wait_for_what_never_comes():
    async def play() -> tuple[int | None, int | None]:
        stop = asyncio.Event()
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        soon = asyncio.ensure_future(asyncio.sleep(0, 7))
        stopping = asyncio.create_task(stop.wait())
        done = await unless_stopped(soon, stopping)
        stop.set()
        return done, await unless_stopped(never, stopping)

    assert asyncio.run(play()) == (7, None)


def test_a_daemon_that_can_open_no_more_files_ends_all_the_same():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] <= highest:
        opened.append(os.open(os.devnull, os.O_RDONLY))

    async def work() -> int:
        # What the loop has opened itself is above the limit now, so that closing it makes room for nothing.
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1] + 3, hard))
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        return 7

    try:
        assert run_to_its_end(work()) == 7
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in opened:
            os.close(fd)
