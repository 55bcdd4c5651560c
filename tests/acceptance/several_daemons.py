"""Several daemons on one PostgreSQL, somebody who submits to them all the time, and a line that can be cut."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from urllib.parse import quote

import botocore.exceptions
from botocore.config import Config

from tests.acceptance.daemon import RunningWindfall
from tests.waiting import wait_until

#: Shorter would be quicker, but a machine that is busy with tests keeps a healthy leader waiting for a second.
LEASE_S = "2.5"
OPTIONS = ("--vcpus", "64", "--memory-mib", "100000", "--gpus", "none", "--lease-s", LEASE_S)
#: What a client sees of a daemon that is dead, frozen or cut off: it asks the next one.
GONE = (
    botocore.exceptions.EndpointConnectionError,
    botocore.exceptions.ConnectionClosedError,
    botocore.exceptions.ReadTimeoutError,
    botocore.exceptions.ConnectTimeoutError,
)


class Daemons:
    """Daemons that share a store and a data directory."""

    def __init__(self, *stores: str) -> None:
        self.all: list[RunningWindfall] = []
        for store in stores:
            one = RunningWindfall("--store", store, *OPTIONS)
            if self.all:
                shutil.rmtree(one.root)
                one.root, one.data = self.all[0].root, self.all[0].data
            one.log = one.root / f"daemon-{len(self.all)}.log"
            self.all.append(one.up())

    @property
    def root(self) -> Path:
        return self.all[0].root

    def leader(self) -> RunningWindfall | None:
        """The one that says of itself that it leads; its file is written when it begins to."""
        url = (self.all[0].data / "address").read_text().strip()
        return next((one for one in self.all if one.url == url), None)

    def follower(self) -> RunningWindfall:
        """One that does not lead."""
        return next(one for one in self.all if one is not self.leader())

    def listed(self) -> dict[int, bool]:
        """The processes that are there, and which of them leads, as `windfall status` says."""
        told = json.loads(self.all[0].windfall("status", "--json").stdout)
        return {one["pid"]: one["leads"] for one in told["daemons"]}

    def wait_for_leader(self, wanted: RunningWindfall) -> None:
        wait_until(lambda: self.leader() is wanted, f"{wanted.url} leads")

    def wait_for_word(self, of: RunningWindfall, text: str, times: int = 1) -> None:
        wait_until(lambda: of.log.read_text().count(text) >= times, f"{text!r} in its log")

    def close(self) -> None:
        """Kill those that follow; the one that leads ends the agent with itself."""
        leader = self.leader() or self.all[0]
        for one in self.all:
            if one is not leader and one.process is not None:
                one.kill_daemon()
        leader.stop()
        for one in self.all:
            one.close()


class Submitter:
    """A client that submits without a pause, to all daemons in turn; who is gone is passed over."""

    def __init__(self, daemons: Daemons, **job: str) -> None:
        self._daemons = daemons
        self._job = job
        self._stop = threading.Event()
        self._keys = {one: one.environment for one in daemons.all}
        self.ids: list[str] = []
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _client(self, one: RunningWindfall):
        import boto3

        keys = self._keys[one]
        return boto3.client(
            "batch",
            endpoint_url=one.url,
            region_name="us-east-1",
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}, read_timeout=2, connect_timeout=2),
        )

    def _run(self) -> None:
        clients: dict[tuple[int, str], object] = {}
        for number in itertools.count():
            if self._stop.is_set():
                return
            place = number % len(self._daemons.all)
            one = self._daemons.all[place]
            client = clients.setdefault((place, one.url), None) or self._client(one)
            clients[place, one.url] = client
            try:
                self.ids.append(client.submit_job(jobName=f"n{number}", **self._job)["jobId"])
            except GONE:
                self._stop.wait(0.05)
            except botocore.exceptions.ClientError as error:
                self.errors.append(str(error))
            self._stop.wait(0.02)

    def wait_for_more(self, count: int = 4) -> None:
        """Wait until so many more were taken."""
        known = len(self.ids)
        wait_until(lambda: len(self.ids) >= known + count, f"{count} more jobs taken")

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join(60)
        assert self.errors == []
        return self.ids


class Relay:
    """Passes on what daemon and PostgreSQL say to one another, until it is cut."""

    def __init__(self, url: str, server_socket: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="windfall-relay-"))
        self._target = server_socket
        self.url = url.replace(quote(str(server_socket.parent), safe=""), quote(str(self._folder), safe=""))
        self._open: list[socket.socket] = []
        self._cut = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._folder / server_socket.name))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._cut:
                near.close()
                continue
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            far.connect(str(self._target))
            self._open += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    @staticmethod
    def _pass_on(a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := a.recv(65536):
                b.sendall(piece)
        for end in (a, b):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End all connections and take no new ones."""
        self._cut = True
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()
        for end in self._open:
            end.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def send(one: RunningWindfall, number: int) -> None:
    """A signal to the daemon's own process."""
    assert one.process is not None
    os.kill(one.process.pid, number)
