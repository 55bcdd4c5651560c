"""A small file system, for tests of what happens when a disk is full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import require_part


@contextmanager
def mounted_at(place: Path, options: str = "size=4m") -> Iterator[Path]:
    """A tmpfs with these mount options at a directory that is there; needs root."""
    can_mount = os.geteuid() == 0 and shutil.which("mount") is not None
    require_part(can_mount, "only root can mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", options, "windfall-test", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    require_part(mounted.returncode == 0, f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
