"""EC2's own address, given to the loopback interface of a network namespace that belongs to the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import windfall
from tests.conftest import require_part

SOURCE = str(Path(windfall.__file__).parents[1])
PROGRAM = """
import fcntl, os, socket, struct, subprocess, sys
with socket.socket() as any_socket:  # The loopback interface of a new namespace is down.
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
from windfall.agent.steward import link_local
from windfall.agent.courier.imds import Facts, MetadataService
from windfall.agent.courier.metadata import MetadataServer
service = MetadataService(Facts("i-1", "g5.xlarge", "spot", "us-east-1", lambda: None, lambda: None))
own = MetadataServer(("127.0.0.1", 0), lambda _: service)
served = link_local.serve_link_local("me", lambda token: own.port if token == "known" else None)
assert served is not None
ask = '''
import urllib.error, urllib.request
try:
    print(urllib.request.urlopen("http://169.254.169.254/latest/meta-data/instance-id", timeout=120).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
'''
def from_attempt(token, agent="me"):
    environment = {**os.environ, "WINDFALL_ATTEMPT": token, "WINDFALL_AGENT": agent}
    command = [sys.executable, "-c", ask]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()
print(from_attempt("known"), from_attempt("unknown"), from_attempt("known", "another"))
scrubbed = ["/bin/sh", "-c", 'env -i "$0" -c "$1"; true', sys.executable, ask]
environment = {**os.environ, "WINDFALL_ATTEMPT": "known", "WINDFALL_AGENT": "me"}
print(subprocess.run(scrubbed, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip())
print(link_local.serve_link_local("other", lambda token: None))
served.close()
print(list(link_local._labels()))
"""
FOREIGN = """
import subprocess
subprocess.run(["ip", "address", "add", "169.254.169.254/32", "dev", "lo"], check=True)
from windfall.agent.steward import link_local
print(link_local.serve_link_local("me", lambda token: None))
"""


def in_a_namespace(program: str) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--net", sys.executable, "-P", "-c", program]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(autouse=True)
def namespaces() -> None:
    require_part(os.geteuid() == 0 and shutil.which("unshare") is not None, "needs root and unshare")
    possible = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    require_part(possible, "network namespaces cannot be made here")


def test_the_address_answers_each_attempt_with_its_own_metadata_and_goes_away():
    done = in_a_namespace(PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["i-1 403 403", "i-1", "None", "[]"]
    assert "not served at 169.254.169.254" in done.stderr


def test_an_address_that_somebody_else_gave_is_left_alone():
    require_part(shutil.which("ip") is not None, "needs the program ip")
    done = in_a_namespace(FOREIGN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["None"]
    assert "has that address already" in done.stderr
