"""`windfall get`: a job's checkpoint, outputs and logs as plain files.

Decides where each goes below the directory, what is said of it, and what is refused: nothing is written over without
being asked to, through a link, or outside of the directory. Everything comes through the daemon, into a directory
beside its place first, so that nothing half is ever there.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windfall.agent.walking import LOOK, entries_below, opened_directory, removed
from windfall.cli.client import Client, connect
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.listing import FINISHED, job_id
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.terminal_text import for_terminal
from windfall.cli.wording import counted

if TYPE_CHECKING:
    from types import FrameType

    from windfall.cli.fetching import FetchProgress
    from windfall.cli.stored import Connections, StoredPart

#: What is being fetched, below the directory.
INCOMING = ".windfall-get"

Known = dict[str, Any]


@click.command()
@click.option("--at", metavar="STEP", help="The checkpoint of this step, or of this name (the newest).")
@click.option(
    "--only",
    type=click.Choice(["checkpoint", "outputs", "logs"]),
    help="Fetch this part alone.",
)
@click.option("--force", is_flag=True, help="Replace files of the same name; other files stay.")
@job_argument
@click.argument(
    "directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path)
)
@data_option
@json_option
def get(
    at: str | None,
    only: str | None,
    force: bool,
    job: str,
    directory: Path | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Fetch a job's checkpoint, outputs and logs as files.

    They are written to DIR/checkpoint, DIR/outputs and DIR/logs; DIR is the job's name by default. The job may be
    running. A call that was interrupted goes on where it stopped.
    """
    from windfall.cli.stored import Connections, stored_files

    if at is not None and not at.strip():
        raise BadUsage("--at is empty; give it a step or a name that `windfall checkpoints` shows")
    client = connect(data)
    wanted = job_id(client, job)
    stored = stored_files(client, wanted)
    place = directory or Path(_directory_name(stored))
    connections = Connections(data)
    fetching = _Fetching(client, connections, at, only, force=force, quiet=as_json)
    try:
        with _explained_errors(place), _made(place), _interrupted_at_once(connections):
            if stored["arraySize"] is None:
                fetching.fetch(stored, place)
            else:
                fetching.fetch_children(stored, place)
    finally:
        connections.close()
    if as_json:
        print_json({"jobId": wanted, "fetched": fetching.fetched})


def _directory_name(stored: Known) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stored["jobName"]).strip("-.") or "job"
    number = re.search(r"[:#]([0-9]+)$", stored["jobId"])
    return f"{name}-{number[1]}" if number else name


@contextmanager
def _made(place: Path) -> Iterator[None]:
    """Make a directory; one that stays empty is taken away again."""
    place.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            (place / INCOMING).rmdir()
        with suppress(OSError):
            place.rmdir()
        raise


@contextmanager
def _interrupted_at_once(connections: Connections) -> Iterator[None]:
    """Let Ctrl-C also end the threads that wait for a daemon which is away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        connections.stop()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _explained_errors(place: Path) -> Iterator[None]:
    """Failures of the disk and of checkpoints in words of this command."""
    from windfall.agent.sync.errors import DamagedError, NoRoomError
    from windfall.objects.errors import ObjectsError

    again = "run the same command again, and it goes on where it stopped"
    try:
        yield
    except NoRoomError:
        raise CliError(f"there is not enough room on the disk of {place}; make room and {again}") from None
    except DamagedError as error:
        raise CliError(f"the checkpoint is damaged: {error}; see `windfall checkpoints`") from None
    except ObjectsError as error:
        raise CliError(f"{error}; {again}") from None
    except OSError as error:
        raise CliError(
            f"{error.filename or place}: {error.strerror or error}; correct that, then {again}"
        ) from None


class _Fetching:
    """One call of the command."""

    def __init__(
        self,
        client: Client,
        connections: Connections,
        at: str | None,
        only: str | None,
        *,
        force: bool,
        quiet: bool,
    ) -> None:
        self._client = client
        self._quiet = quiet
        #: What came, for programs.
        self.fetched: list[dict[str, str]] = []
        self._connections = connections
        self._at = at
        self._only = only
        self._force = force

    def fetch_children(self, stored: Known, place: Path) -> None:
        """Fetch what each child of an array has, into a directory with its number."""
        from windfall.cli.stored import stored_files

        fetched_any = False
        for number in range(stored["arraySize"]):
            child = stored_files(self._client, f"{stored['jobId']}:{number}")
            if child["logs"]:
                fetched_any = True
                below = place / str(number)
                below.mkdir(exist_ok=True)
                self.fetch(child, below)
        if not fetched_any:
            raise CliError(f"no child of {stored['jobId']} has started yet, so there is nothing to fetch")

    def fetch(self, stored: Known, place: Path) -> None:
        """Fetch what a job has."""
        from windfall.agent.walking import removed
        from windfall.cli.get import put_in_place, refuse_existing

        parts: dict[str, Callable[[Known, Path], str | None]] = {
            "checkpoint": self._checkpoint,
            "outputs": self._outputs,
            "logs": self._logs,
        }
        wanted = {name: part for name, part in parts.items() if self._only in (None, name)}
        for name in wanted:
            refuse_existing(place / name, force=self._force)
        incoming = place / INCOMING
        incoming.mkdir(mode=0o700, exist_ok=True)
        fetched_any = False
        for name, part in wanted.items():
            words = part(stored, incoming / name)
            if words is not None:
                fetched_any = True
                put_in_place(incoming / name, place / name)
                self.fetched.append({"part": name, "path": str((place / name).absolute()), "content": words})
                if not self._quiet:
                    click.echo(for_terminal(f"{name:<10}  {words} -> {place / name}", colours=False))
        removed(str(incoming))
        if not fetched_any:
            raise CliError(_nothing(stored, self._only))

    def _checkpoint(self, stored: Known, place: Path) -> str | None:
        from windfall.cli.checkpoints import no_checkpoints
        from windfall.cli.fetching import FetchProgress, fetch_checkpoint

        if stored["checkpointUri"] is None:
            if self._at is not None:
                raise CliError(no_checkpoints(stored))
            return None
        progress = FetchProgress("checkpoint")
        part = self._part(stored, {"part": "checkpoint"}, progress)
        return fetch_checkpoint(part, place, self._at, progress)

    def _outputs(self, stored: Known, place: Path) -> str | None:
        from windfall.cli.fetching import FetchProgress, fetch_output

        lines = []
        for number, output in enumerate(stored["outputs"]):
            progress = FetchProgress(f"output {output['name']}")
            part = self._part(stored, {"part": "output", "output": number}, progress)
            lines.append(fetch_output(part, output, number, place, progress))
        return ", ".join(words for words in lines if words is not None) or None

    def _logs(self, stored: Known, place: Path) -> str | None:
        from windfall.cli.log_reading import read_all

        for log in stored["logs"]:
            place.mkdir(exist_ok=True)
            path = place / f"attempt-{log['attempt']}.log"
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
                pages = read_all(self._client, log["group"], log["stream"])
                file.writelines(f"{event['message']}\n" for page in pages for event in page)
        return counted(len(stored["logs"]), "attempt") if stored["logs"] else None

    def _part(self, stored: Known, part: dict[str, Any], progress: FetchProgress) -> StoredPart:
        from windfall.cli.stored import StoredPart

        return StoredPart(self._connections, stored["jobId"], part, progress.add)


def _nothing(stored_job: Known, only: str | None) -> str:
    """What to tell somebody who wants what a job does not have."""
    from windfall.cli.checkpoints import no_checkpoints

    job = stored_job["jobId"]
    if only == "checkpoint":
        saved = f"{job} has saved no checkpoint yet"
        return no_checkpoints(stored_job) if stored_job["checkpointUri"] is None else saved
    if only == "outputs":
        stored = f"{job} has stored no outputs yet; it is {stored_job['state']}"
        return stored if stored_job["outputs"] else f"{job} has no outputs that are kept"
    yet = "" if stored_job["state"] in FINISHED else " yet"
    return f"{job} is {stored_job['state']} and has nothing to fetch{yet}; see `windfall why {job}`"


def refuse_existing(place: Path, *, force: bool) -> None:
    """Refuse a place that holds something already, unless files in it may be replaced."""
    try:
        status = place.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise CliError(f"{place} is not a directory; remove it, or name another directory")
    if not force and any(place.iterdir()):
        raise CliError(
            f"{place} holds files already; name another directory, or replace files of the same name with --force"
        )


def put_in_place(fetched: Path, place: Path) -> None:
    """Move everything that was fetched to its place; files of the same name there are replaced, others stay."""
    if not place.exists():
        fetched.rename(place)
        # It was filled in a directory that was nobody else's business.
        place.chmod(place.parent.stat().st_mode & 0o777)
        return
    with _opened(fetched) as source, _opened(place) as target:
        for path, status, holder in entries_below(source):
            above, _, name = path.rpartition("/")
            if stat.S_ISDIR(status.st_mode):
                os.close(opened_directory(target, path, make=True))
                continue
            directory = opened_directory(target, above, make=True)
            try:
                os.rename(name, name, src_dir_fd=holder, dst_dir_fd=directory)
            finally:
                os.close(directory)
    removed(str(fetched))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, LOOK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
