"""A keeper: the process that stands for one container on the agent's side.

It fetches the image, makes and starts the container, copies its output to the attempt's log, and ends as the
container ended. Everything that it does it can be killed in: another one finds the container by its name and goes on.
SIGTERM asks the container to stop, SIGUSR1 kills it; nothing else ends the container with the keeper.

    python -I -S -c "... keeper.main(DIRECTORY)"

Decides the order of these steps and what a failure of each is called, in AWS's words. Must not know attempts, the
journal, or what the request means (orders.py wrote it). Imports the standard library and its neighbours alone: there
is one of these for every running container.
"""

from __future__ import annotations

import os
import select
import signal
import time

from windfall.agent.container.engine import Engine
from windfall.agent.container.errors import EngineError, EngineRefused, EngineTimeout, EngineUnreachable
from windfall.agent.container.following import copy_output
from windfall.agent.container.notebook import OWN_LOG, SECRETS, Notebook
from windfall.agent.container.ownership import hand_over, user_of
from windfall.agent.container.registry import configuration_path, registry_headers
from windfall.agent.container.worker_command import worker_body
from windfall.agent.speech import say

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from windfall.agent.container.exchange import Exchange

    T = TypeVar("T")

OUT_OF_MEMORY = "OutOfMemoryError: Container killed due to memory usage"
#: What a keeper ends with when there is no exit code of a container.
NO_CODE = 125
_KILLED_CODE = 137
_TELL_EVERY_S = 0.5
_LOOK_AGAIN_S, _LOOK_AGAIN_MOST_S = 0.1, 5.0
_KNOCK_EVERY_S = 0.25
_ENDED = ("exited", "dead", "stopped", "removing")


class Stopped(Exception):
    """A stop was asked for before the container was started."""


class NotStarted(Exception):
    """The container cannot be started; the text is the reason."""


class Keeper:
    """One container."""

    def __init__(self, directory: str) -> None:
        self._wake_fd, notify_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stop = self._kill = self._may_leave = self._awaits_output = self._stop_passed = False
        signal.set_wakeup_fd(notify_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_signal)
        self._notes = Notebook(directory)
        self._orders = self._notes.orders
        self._engine = Engine(self._orders["socket"], self._orders["api"])
        self._container: str = self._notes.state.get("container", "")
        self._stop_signal = "SIGTERM"

    def run(self) -> int:
        """Do it all and return the code to end with."""
        state = self._notes.state
        self._notes.write(keeper=os.getpid())
        if state.get("ended_at") is None:
            try:
                self._make()
                self._follow()
            except Stopped:
                self._never_started("CannotStartContainerError: stopped before it was started")
            except NotStarted as error:
                self._never_started(str(error))
        self._clear_away()
        code = state.get("exit_code")
        return NO_CODE if code is None else int(code)

    # --- until it runs -------------------------------------------------------------------------------

    def _make(self) -> None:
        """Bring the container to the point where it has been started, whatever an earlier keeper did."""
        orders = self._orders
        # With a container that was made before, a stop is that container's affair: it may be running.
        self._may_leave = not self._container
        if self._may_leave and self._stop:
            raise Stopped
        failure = "CannotCreateContainerError" if self._may_leave else ""
        found = self._patiently(failure, lambda: self._engine.inspect(orders["name"]))
        if found is None:
            if self._container:
                return  # It existed before: its removal ended it, and it must not run twice.
            self._have_image()
            found = self._create()
        self._may_leave = False
        self._container = str(found["Id"])
        self._notes.write(container=self._container, doing="starting the container")
        if str(found["State"].get("Status", "")) in ("created", "configured", "initialized"):
            self._start(found)

    def _have_image(self) -> None:
        image, pull = self._orders["image"], self._orders["pull"]
        name = "CannotPullContainerError"
        if pull != "always" and self._patiently(name, lambda: self._engine.image(image)) is not None:
            return
        if pull == "never":
            raise NotStarted(
                f"{name}: image {image} is not on this machine and its pull policy is never;"
                f" fetch it (docker pull {image}) or leave out windfall:pull=never"
            )
        self._notes.write(doing=f"pulling image {image}")
        headers = registry_headers(image, configuration_path(dict(os.environ)))
        self._patiently(name, lambda: self._pull(image, headers))

    def _pull(self, image: str, headers: dict[str, str]) -> None:
        layers: dict[str, tuple[int, int]] = {}
        told_at, told = time.monotonic(), ""
        for line in self._engine.pull(image, headers):
            detail = line.get("progressDetail") or {}
            if line.get("status") == "Downloading" and detail.get("total"):
                layers[str(line.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
            elif line.get("status") in ("Download complete", "Pull complete") and line.get("id") in layers:
                layers[line["id"]] = (layers[line["id"]][1],) * 2
            words = f"pulling image {image}{percentage(layers)}"
            if words != told and time.monotonic() >= told_at + _TELL_EVERY_S:
                told_at, told = time.monotonic(), words
                self._notes.write(doing=words)

    def _create(self) -> dict[str, Any]:
        orders, name = self._orders, "CannotCreateContainerError"
        body = orders["body"]
        worker = orders.get("worker")
        if worker:
            image = self._patiently(name, lambda: self._engine.image(orders["image"])) or {}
            body = worker_body(body, image.get("Config") or {}, worker["target"], worker["source"])
        if orders["secrets"]:
            body = {**body, "Env": [*body["Env"], *self._secret_variables()]}

        def create() -> str:
            try:
                return self._engine.create(orders["name"], body)
            except EngineRefused as error:
                # A request of a keeper before this one may have been carried out after it was gone.
                there = self._engine.inspect(orders["name"]) if error.status == 409 else None
                if there is None:
                    raise
                return str(there["Id"])

        self._patiently(name, create)
        found = self._patiently(name, lambda: self._engine.inspect(orders["name"]))
        if found is None:
            raise NotStarted(f"{name}: the container was removed as soon as it was made")
        return found

    def _secret_variables(self) -> list[str]:
        """Return the secrets as variables, and put them where the container sees them as files."""
        # Only where there are secrets: these bring a dozen modules with them.
        from windfall.agent.secrets import MissingSecret, secret_values
        from windfall.jobs.containers import Secret

        wanted = [Secret(**one) for one in self._orders["secrets"]]
        try:
            values = secret_values(self._orders["secrets_directory"], wanted)
        except MissingSecret as error:
            raise NotStarted(str(error)) from None
        for name in values:
            # What would be a path is none of ours to write.
            if not name.replace("_", "").replace("-", "").replace(".", "").isalnum():
                raise NotStarted(
                    f'ResourceInitializationError: "{name}" cannot name a secret: use letters, digits and _'
                )
        directory = f"{self._notes.directory}/{SECRETS}"
        os.makedirs(directory, 0o755, exist_ok=True)
        os.chmod(directory, 0o755)  # noqa: S103 - the one above it lets nobody pass; the container sees this one
        lines = []
        for name, value in values.items():
            path = f"{directory}/{name}"
            if os.path.exists(path):
                os.unlink(path)
            # Where nothing can be given away, the container's user is somebody else and must read it all the same.
            mode = 0o400 if os.geteuid() == 0 else 0o444
            with open(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8"
            ) as file:
                os.fchmod(file.fileno(), mode)
                file.write(value)
            lines += [f"{name}={value}", f"{name}_FILE=/run/secrets/{name}"]
        return lines

    def _start(self, found: dict[str, Any]) -> None:
        name = "CannotStartContainerError"
        if self._stop:
            raise Stopped
        self._give_away(str(found["Config"].get("User") or ""))
        self._patiently(name, lambda: self._engine.start(self._container))

    def _give_away(self, user: str) -> None:
        orders = self._orders
        if os.geteuid() != 0 or not (orders["secrets"] or orders["staged_root"]):
            return
        name = "CannotStartContainerError"
        owner = self._patiently(name, lambda: user_of(self._engine, self._container, user))
        if owner == (0, 0):
            return
        for one in orders["secrets"]:
            os.chown(f"{self._notes.directory}/{SECRETS}/{one['name']}", *owner)
        if orders["staged_root"]:
            hand_over(orders["staged_root"], orders["staged_own"], orders["staged_kept"], owner)
        if orders["work"]:
            hand_over(orders["work"], "", [], owner)

    # --- while it runs -------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Copy the output until the container has ended and all of it is copied."""
        pause_s = _LOOK_AGAIN_S / 10
        while True:
            details = self._patiently("", lambda: self._engine.inspect(self._container))
            if details is None:
                self._ended(None, "the container was removed by somebody else while it ran")
                return
            self._note_running(details)
            # An engine may close a stream that it follows before it has given the last of it (seen with Docker 20.10
            # and a last line without an end). What it keeps is whole once the container counts as ended: so only a
            # copy that was begun after that is known to be complete.
            had_ended = str(details["State"].get("Status")) in _ENDED
            try:
                stream = self._open_output()
                try:
                    copy_output(stream, 1, self._wake_fd, self._on_wake)
                finally:
                    stream.close()
            except EngineError:
                self._wait(_LOOK_AGAIN_S)
                continue
            if had_ended:
                self._close(details["State"])
                return
            self._wait(pause_s)
            pause_s = min(2 * pause_s, _LOOK_AGAIN_MOST_S)

    def _open_output(self) -> Exchange:
        # Podman answers only when the container has said something, and until then it must be possible to stop it.
        self._awaits_output = True
        try:
            self._pass_signals()
            return self._engine.logs(self._container)
        finally:
            self._awaits_output = False

    def _note_running(self, details: dict[str, Any]) -> None:
        pid = int(details["State"].get("Pid") or 0) or None
        state = self._notes.state
        self._stop_signal = str(details["Config"].get("StopSignal") or "SIGTERM")
        if state.get("started_at") is None or (pid is not None and state.get("pid") != pid):
            started_at = state.get("started_at") or now_ms()
            self._notes.write(doing=None, started_at=started_at, pid=pid, pid_ticks=start_ticks(pid))

    def _close(self, outcome: dict[str, Any]) -> None:
        code = int(outcome.get("ExitCode") or 0)
        if outcome.get("OOMKilled") and code != 0:
            self._ended(_KILLED_CODE, OUT_OF_MEMORY)
        else:
            self._ended(code, None)

    def _ended(self, code: int | None, reason: str | None) -> None:
        self._notes.write(ended_at=now_ms(), exit_code=code, reason=reason)

    def _never_started(self, failure: str) -> None:
        self._notes.write(ended_at=now_ms(), failure=failure, doing=None)

    def _clear_away(self) -> None:
        """Remove the container and what only it needed; what the engine does not do now the next agent will."""
        self._may_leave = False
        try:
            self._engine.remove(self._orders["name"])
        except EngineError as error:
            say(f"{self._orders['name']} is not removed: {error}")
        directory = f"{self._notes.directory}/{SECRETS}"
        if os.path.isdir(directory):
            for name in os.listdir(directory):
                os.unlink(f"{directory}/{name}")
            os.rmdir(directory)

    # --- signals, and an engine that is not there ----------------------------------------------------

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGUSR1:
            self._kill = True
        self._stop = True
        if self._awaits_output:
            self._pass_signals()
        if self._may_leave:
            self._may_leave = False
            raise Stopped

    def _on_wake(self) -> None:
        os.read(self._wake_fd, 4096)
        self._pass_signals()

    def _pass_signals(self) -> None:
        """Give the container what was asked for: the image's stop signal once, SIGKILL as often as it is asked.

        It is written down when it was sent, not before: a keeper that dies between the two has the next one send it
        again, which a job can bear; one that is never told would lose all the time that it was given to save itself.
        """
        try:
            if self._kill:
                self._kill = False
                self._send("SIGKILL")
            elif self._stop and not self._stop_passed and not self._notes.state.get("stop_sent"):
                self._stop_passed = True
                self._send(self._stop_signal)
                self._notes.write(stop_sent=True)
        except EngineRefused as error:
            say(f"{self._orders['name']} cannot be signalled: {error}")

    def _send(self, name: str) -> None:
        try:
            self._engine.kill(self._container, name)
        except (EngineUnreachable, EngineTimeout):
            # Without its engine a container is a process like others.
            state = self._notes.state
            pid = state.get("pid")
            if pid is not None and start_ticks(pid) == state.get("pid_ticks"):
                os.kill(pid, getattr(signal, name, signal.SIGTERM))

    def _patiently(self, failure: str, ask: Callable[[], T]) -> T:
        """Ask until the engine answers. Before the start (`failure` names it) only for a limited time."""
        gone_since: float | None = None
        while True:
            try:
                return ask()
            except EngineRefused as error:
                if failure:
                    raise NotStarted(f"{failure}: {error}") from None
            except EngineTimeout as error:
                if failure:
                    raise NotStarted(f"DockerTimeoutError: {error}") from None
            except EngineUnreachable as error:
                now = time.monotonic()
                gone_since = now if gone_since is None or self._lives() else gone_since
                if now - gone_since > self._orders["patience_s"]:
                    if failure:
                        raise NotStarted(f"{failure}: {error}") from None
                    raise NotStarted(
                        f"DockerTimeoutError: {error}; how the container ended is not known"
                    ) from None
            self._wait(_KNOCK_EVERY_S)

    def _lives(self) -> bool:
        pid = self._notes.state.get("pid")
        return pid is not None and start_ticks(pid) == self._notes.state.get("pid_ticks")

    def _wait(self, seconds: float) -> None:
        if select.select([self._wake_fd], [], [], seconds)[0]:
            os.read(self._wake_fd, 4096)
            if self._container and not self._may_leave and self._notes.state.get("started_at"):
                self._pass_signals()


def percentage(layers: dict[str, tuple[int, int]]) -> str:
    """Return how much of an image has come, as far as its layers have said how large they are."""
    total = sum(size for _, size in layers.values())
    return f": {100 * sum(there for there, _ in layers.values()) // total} %" if total else ""


def start_ticks(pid: int | None) -> int | None:
    """Return when a process started; with the pid that names it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
        return int(content[content.rfind(b")") + 2 :].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def now_ms() -> int:
    """Return the time of day in milliseconds."""
    return time.time_ns() // 1_000_000


def main(directory: str) -> int:
    """Be the keeper whose orders are in a directory; standard output is the attempt's log."""
    # Not the log: that is the container's alone, byte for byte.
    fd = os.open(f"{directory}/{OWN_LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(fd, 2)
    return Keeper(directory).run()
