"""The trainer's end of the writer process: starts it, hands it snapshots, and hears what became durable.

One link is one writer process. When the writer dies, everything that was under way fails and the owner starts
another link; whether and when is not decided here.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windfall.checkpoint.errors import SaveFailed, WrongUse
from windfall.checkpoint.wire import SocketEnd

#: How long a Python process may take to start on a busy machine.
START_S = 60.0
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class WriterLink:
    """A running writer, and a thread that listens to it."""

    def __init__(
        self,
        directory: Path,
        keep: int,
        lock_wait_s: float,
        heard: Callable[[WriterLink, dict[str, Any]], None],
    ) -> None:
        """Starts the writer; `heard` gets this link and each of its messages, and {"op": "gone"} at its end."""
        self._directory = directory
        self._lock_wait_s = lock_wait_s
        self._heard = heard
        ours, theirs = socket.socketpair()
        self._line = SocketEnd(ours)
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._refusal = ""
        self.alive = True
        #: What this writer has been given already: buffers by number, and one layout.
        self.images: set[int] = set()
        self.layout = 0
        paths = [str(_PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        program = [sys.executable, "-S", "-m", "windfall.checkpoint.writer"]
        with theirs:
            self.process = subprocess.Popen(
                [*program, *map(str, (theirs.fileno(), os.getpid(), keep, lock_wait_s, directory))],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Its own session: a signal to the trainer's group, Ctrl-C say, leaves the last snapshot alone.
                start_new_session=True,
                cwd="/",
            )
        name = "windfall-checkpoint-listener"
        self._listener = threading.Thread(target=self._listen, name=name, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while True:
            try:
                messages = self._line.receive()
            except OSError:
                messages = None
            for message in messages or ():
                if message["op"] == "locked":
                    self._refusal = "locked"
                elif message["op"] != "ready":
                    self._heard(self, message)
                    continue
                self._settled.set()
            if messages is None:
                break
        self.alive = False
        self._settled.set()
        self._heard(self, {"op": "gone"})
        with self._lock:
            self._line.end.close()
        self.process.wait()

    def wait_ready(self) -> None:
        """Waits until the writer holds the directory, so that no earlier writer will add to it."""
        self._settled.wait(self._lock_wait_s + START_S)
        if self._refusal:
            raise WrongUse(
                f"another process keeps checkpoints in {self._directory}: end it, or give each process (each "
                "rank) a directory of its own with windfall.checkpoint.open(directory)"
            )
        if not self._settled.is_set() or not self.alive:
            raise SaveFailed(
                f"the checkpoint writer did not start for {self._directory}: check that the directory is "
                f"writable and that {sys.executable} runs"
            )

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Hands a message over; raises SaveFailed when the writer is gone."""
        self.send_text(json.dumps(message), descriptors)

    def send_text(self, text: str, descriptors: Sequence[int] = ()) -> None:
        """The same for a message that is JSON already."""
        with self._lock:
            try:
                self._line.send_text(text, descriptors)
            except OSError as error:
                self.alive = (
                    False  # known here before the listener hears of it, and the next save must not wait
                )
                raise SaveFailed("the checkpoint writer has gone; the next save starts another") from error

    def close(self, timeout_s: float) -> None:
        """Lets the writer finish what it has and end; one that is not done in time goes on alone."""
        with self._lock, contextlib.suppress(OSError):
            self._line.end.shutdown(socket.SHUT_WR)
        # A writer that is not done in time goes on alone, and its end is init's to hear of.
        self._listener.join(timeout_s)
