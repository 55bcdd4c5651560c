"""Removes the working directories of forgotten attempts: empty ones at once, full ones in a thread,
because a job may have left a million files. Must not know the journal; it says which tokens are done.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from windfall.agent.directories import PrivateDirectories
from windfall.agent.removing import put_aside, remove_tree
from windfall.agent.speech import say


class Janitor:
    """Removes directories and remembers which attempts are done with."""

    def __init__(self, directories: PrivateDirectories, notify: Callable[[], None]) -> None:
        self._directories = directories
        self._notify = notify
        self._work: SimpleQueue[tuple[str | None, list[str]]] = SimpleQueue()
        self._done: deque[str] = deque()
        self._thread: threading.Thread | None = None

    def remove_now(self, token: str | None, paths: list[str]) -> bool:
        """Put the directories away if they are empty; otherwise begin to remove them, and return False.

        Without a token they belong to no attempt that anybody waits for.
        """
        full = [path for path in paths if not self._directories.discard_empty(path)]
        if not full:
            return True
        self._work.put((token, full))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)
            self._thread.start()
        return False

    def finished(self) -> list[str]:
        """Take the tokens whose directories are gone, or put aside for good."""
        taken = []
        while self._done:
            taken.append(self._done.popleft())
        return taken

    def _run(self) -> None:
        while True:
            token, paths = self._work.get()
            for path in paths:
                _remove(path)
            if token is not None:
                self._done.append(token)
                self._notify()


def _remove(path: str) -> None:
    """Remove a directory; one that cannot be is put aside, where no later agent tries again and again."""
    try:
        kept = remove_tree(path)
    except Exception as error:  # noqa: BLE001 - the edge of the loop: one directory must not keep all others
        kept = repr(error)
    if kept:
        aside = put_aside(path)
        where = f"it was put aside as {aside}: remove it by hand" if aside else "it stays where it is"
        say(f"{path} cannot be removed ({kept}); {where}")
