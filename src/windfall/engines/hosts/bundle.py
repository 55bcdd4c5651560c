"""What is sent to a host: this very package, and the distributions that an agent needs, from where they are installed.

Decides what an agent needs, and whether this daemon's own copies fit a host: same Python, libc and architecture.
Otherwise only this package is sent, and the host's pip gets the rest at the same versions. The name of an installation
says what is in it, so that an upgrade never changes files under a running agent.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import sys
import tarfile
from dataclasses import dataclass
from functools import cache

import windfall

#: What agents import; tests/acceptance/test_hosts.py runs them with nothing else.
NEEDED = ("msgspec", "obstore", "nvidia-ml-py")
#: Beside them, for Pythons before 3.13.
_NEEDED_BEFORE_313 = ("typing-extensions",)
_DIGEST_LETTERS = 12


@dataclass(frozen=True, slots=True)
class Platform:
    """What decides whether compiled files of one machine run on another."""

    tag: str
    machine: str
    libc: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """One installation."""

    #: The directory that it becomes.
    name: str
    #: Path below the directory to the file here.
    files: tuple[tuple[str, str], ...]
    #: What the index must add.
    requirements: tuple[str, ...]

    def archive(self) -> bytes:
        """All files, compressed."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3) as bundle:
            for name, path in self.files:
                entry = tarfile.TarInfo(name)
                with open(path, "rb") as file:
                    content = file.read()
                entry.size, entry.mode = len(content), 0o644
                bundle.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()


def own_platform() -> Platform:
    """This machine's."""
    try:
        libc = str(os.confstr("CS_GNU_LIBC_VERSION")).partition(" ")[0]
    except (ValueError, OSError):
        libc = "other"
    return Platform(str(sys.implementation.cache_tag), os.uname().machine, libc)


@cache
def bundle_for(platform: Platform) -> Bundle:
    """What makes an agent of this version run on a platform. Reads all of it once: call it in a thread."""
    own = _own_files()
    distributions = (*NEEDED, *_NEEDED_BEFORE_313)
    if platform == own_platform() and (needed := _distribution_files(distributions)) is not None:
        return _named(own + needed, (), platform)
    pins = tuple(
        f"{name}=={importlib.metadata.version(name)}"
        + (' ; python_version < "3.13"' if name in _NEEDED_BEFORE_313 else "")
        for name in distributions
    )
    return _named(own, pins, platform)


def _named(files: list[tuple[str, str]], requirements: tuple[str, ...], platform: Platform) -> Bundle:
    digest = hashlib.sha256(repr((platform, requirements)).encode())
    for name, path in sorted(files):
        with open(path, "rb") as file:
            digest.update(f"\0{name}\0".encode() + hashlib.sha256(file.read()).digest())
    name = f"{windfall.__version__}-{digest.hexdigest()[:_DIGEST_LETTERS]}"
    return Bundle(name, tuple(sorted(files)), requirements)


def _own_files() -> list[tuple[str, str]]:
    root = os.path.dirname(os.path.abspath(windfall.__file__))
    files = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name != "__pycache__")
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith((".pyc", "~")) and os.path.isfile(path):
                files.append((os.path.join("windfall", os.path.relpath(path, root)), path))
    return files


def _distribution_files(names: tuple[str, ...]) -> list[tuple[str, str]] | None:
    """The files of installed distributions; None if one of them cannot be copied."""
    files = []
    for name in names:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return None
        if distribution.files is None:
            return None
        for part in distribution.files:
            path = str(distribution.locate_file(part))
            # Programs, which lie beside the packages, and compiled files are not needed.
            if (
                part.parts[0] == ".."
                or part.is_absolute()
                or part.suffix == ".pyc"
                or not os.path.isfile(path)
            ):
                continue
            files.append((str(part), path))
    return files
