"""Names and moves inside of a checkpoint directory: what is committed, how it becomes so, what may go.

A checkpoint is a directory `step-<number>` with a manifest; it appears by one rename, and everything else begins
with a dot and ends in .tmp, which no reader looks at. LATEST is for people: nothing here trusts it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from windfall.checkpoint.manifest import FILE_NAME

_COMMITTED = re.compile(r"step-(\d{9,})\Z")
_UNFINISHED = re.compile(r"\.(step-\d+|LATEST)\.(\w+\.)?tmp\Z")

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def name_of(step: int) -> str:
    """The directory of a step; nine digits sort as text up to a billion steps, more still parse."""
    return f"step-{step:09d}"


def committed_steps(directory: Path) -> list[int]:
    """Steps that have a directory with a manifest in it, newest first."""
    steps: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for entry in directory.iterdir():
            match = _COMMITTED.match(entry.name)
            if match and (entry / FILE_NAME).is_file():
                steps.append(int(match[1]))
    return sorted(steps, reverse=True)


def resumed_words(directory: Path, step: int, now: float) -> str:
    """Which checkpoint a run goes on from, how old it is, and how to begin anew."""
    try:
        age_s = max(0.0, now - (directory / name_of(step) / FILE_NAME).stat().st_mtime)
        age = next(f"{age_s / unit_s:.0f} {word}" for unit_s, word in _AGES if age_s >= unit_s or unit_s == 1)
        saved = f", saved {age} ago,"
    except OSError:
        saved = ""
    return (
        f"windfall.checkpoint: resumed at step {step:,}{saved} from {directory};"
        " to begin anew, remove that directory or open another one"
    )


def sync_directory(directory: Path) -> None:
    """Makes names that were added to or removed from a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Writes a new file and its bytes to the disk; the name needs sync_directory."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def workplace(directory: Path, step: int) -> Path:
    """An empty directory in which a checkpoint is put together, on the same file system."""
    place = directory / f".{name_of(step)}.tmp"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def commit(directory: Path, place: Path, step: int) -> Path:
    """Turns a complete workplace into the checkpoint of a step; afterwards it survives a power cut."""
    final = directory / name_of(step)
    sync_directory(place)
    if final.exists():
        # A run that fell back to an older checkpoint has come to this step again.
        remove(directory, final)
    place.rename(final)
    sync_directory(directory)
    latest = directory / ".LATEST.tmp"
    write_durably(latest, (final.name + "\n").encode())
    latest.rename(directory / "LATEST")
    return final


def remove(directory: Path, checkpoint: Path) -> None:
    """Takes a checkpoint away: out of sight by one rename, then file by file."""
    doomed = directory / f".{checkpoint.name}.gone.tmp"
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def retain(directory: Path, keep: int, newest: int) -> None:
    """Removes committed checkpoints below `newest` until `keep` are left; newer ones are never touched."""
    older = [step for step in committed_steps(directory) if step < newest]
    for step in older[max(keep - 1, 0) :]:
        with contextlib.suppress(OSError):  # what cannot be removed now is tried again after the next save
            remove(directory, directory / name_of(step))
    with contextlib.suppress(FileNotFoundError):
        for entry in directory.iterdir():
            if entry.name.startswith(".step-") and entry.name.endswith(".damaged.tmp"):
                shutil.rmtree(entry, ignore_errors=True)


def set_aside(directory: Path, step: int) -> None:
    """Hides a damaged checkpoint; it can be looked at until a newer one has been committed."""
    aside = directory / f".{name_of(step)}.damaged.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(OSError):
        (directory / name_of(step)).rename(aside)


def clear_unfinished(directory: Path) -> None:
    """Removes what a killed writer left behind; only the holder of the directory's lock may call it."""
    with contextlib.suppress(FileNotFoundError):
        for entry in directory.iterdir():
            if not _UNFINISHED.match(entry.name) or entry.name.endswith(".damaged.tmp"):
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
