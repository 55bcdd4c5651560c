"""What a simulated market must remember when its daemon is killed: who was launched as which, and who is already gone.

A script of interruptions counts launches. A loss without notice kills before it is told, so the daemon that asks the
agent next must know that those ends were not ends of their own. Kept in one small file; decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from windfall.jobs.ids import InstanceId

log = logging.getLogger(__name__)


class _Pages(msgspec.Struct):
    #: The first instances of each environment that has a script, in order.
    launched: dict[str, list[str]] = {}
    #: Instances that were taken away without notice, and when.
    taken: dict[str, int] = {}


class LaunchBook:
    """The file and what is in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pages = _Pages()
        try:
            self._pages = msgspec.json.decode(path.read_bytes(), type=_Pages)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("%s cannot be read (%s): scripts of interruptions begin again", path, error)

    def number(self, environment: str, instance: InstanceId, most: int) -> int:
        """The number of an instance among its environment's, from 1; a new one is the next, up to one beyond `most`."""
        launched = self._pages.launched.setdefault(environment, [])
        if instance in launched:
            return launched.index(instance) + 1
        if len(launched) >= most:
            return most + 1
        launched.append(instance)
        self._write()
        return len(launched)

    def take(self, instance: InstanceId, at: int) -> None:
        """Write down that an instance is gone, before anything is killed."""
        self._pages.taken[instance] = at
        self._write()

    def taken_at(self, instance: InstanceId) -> int | None:
        """When an instance was taken away, if it was."""
        return self._pages.taken.get(instance)

    def keep_only(self, environments: Iterable[str], instances: Iterable[InstanceId]) -> None:
        """Drop what is about environments and instances that nobody knows any more."""
        names, ids = set(environments), set(instances)
        pages = _Pages(
            {name: launched for name, launched in self._pages.launched.items() if name in names},
            {instance_id: at for instance_id, at in self._pages.taken.items() if instance_id in ids},
        )
        if pages != self._pages:
            self._pages = pages
            self._write()

    def _write(self) -> None:
        draft = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(self._pages))
            draft.replace(self._path)
        except OSError as error:
            log.warning("%s cannot be written (%s): a restart may read ends wrongly", self._path, error)
