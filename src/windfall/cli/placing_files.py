"""Puts what was fetched where the user wants it: beside its place first, then by renames.

Decides what is refused: nothing is written over without being asked to, through a link, or outside of the directory.
Must not know where the files come from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windfall.agent.walking import LOOK, entries_below, opened_directory, removed
from windfall.cli.errors import CliError


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
