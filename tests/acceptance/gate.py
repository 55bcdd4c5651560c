"""What jobs wait for until a test lets them go on: how long a test takes until then does not matter."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Gate:
    """A directory that jobs of every user can write to, in a sandbox too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: For a shell: go on when the test has opened the gate.
        self.wait = f"until [ -e {directory}/open ]; do sleep 0.1; done"

    def open(self) -> None:
        """Let the jobs that wait go on."""
        (self.directory / "open").touch()

    def meet(self, jobs: int) -> str:
        """For a shell: go on when so many jobs have come here."""
        return (
            f"touch {self.directory}/came-$AWS_BATCH_JOB_ID;"
            f" until [ $(ls {self.directory} | grep -c came) -ge {jobs} ]; do sleep 0.1; done"
        )


@contextmanager
def a_gate() -> Iterator[Gate]:
    """A gate that is closed."""
    # Not below /tmp: jobs in sandboxes have one of their own.
    directory = Path(tempfile.mkdtemp(prefix="windfall-gate-", dir="/var/tmp"))
    directory.chmod(0o777)
    gate = Gate(directory)
    try:
        yield gate
    finally:
        shutil.rmtree(directory, ignore_errors=True)
