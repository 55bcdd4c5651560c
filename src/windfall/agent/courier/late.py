"""What an ended attempt left and no store has taken: tried again and again until it is stored.

Decides how often it is tried, when nobody wants it any more, and what no further try can store. Must not know what
becomes of the attempt.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable

from windfall.agent.courier.errors import CannotBring, Replaced
from windfall.agent.courier.means import Means, OwnMeans
from windfall.agent.courier.messages import Line, Store, Stored
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.taking import checkpoint_sync, take_output
from windfall.agent.courier.tree import Tree
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say
from windfall.agent.sync.errors import SupersededError
from windfall.agent.sync.reports import SyncEvent
from windfall.jobs.staging import Output
from windfall.objects.port import ObjectStore

#: How long is waited after a first failure, and after many.
_AGAIN_S, _AGAIN_MOST_S = 2.0, 60.0
#: How long one try to store a checkpoint may take; what it has moved counts for the next.
_FLUSH_S = 600.0


class LateErrand:
    """What is being stored of one attempt that is over."""

    def __init__(
        self,
        order: Store,
        settings: AgentSettings,
        tell: Callable[[Line], None],
        opener: Callable[[str], ObjectStore] | None = None,
        means: Means | None = None,
    ) -> None:
        self.errand = order.errand
        self._order = order
        self._tell = tell
        self._means = means or OwnMeans(order.errand, settings)
        self._tree = Tree(self._means.near(order.errand.places.root), order.errand.owner)
        self._stores = self._means.stores() if opener is None else Stores(None, order.errand.storage, opener)

    def begin(self) -> None:
        """Store it, however long that takes."""
        threading.Thread(target=self._work, name=self.errand.token, daemon=True).start()

    def close(self) -> None:
        """Let go of what was kept open; all has been told."""
        self._means.close()

    def _work(self) -> None:
        left: dict[str, Callable[[], None]] = {
            one.path: functools.partial(self._take, one) for one in self._order.outputs
        }
        if self._order.checkpoint:
            left["the last checkpoint"] = self._take_checkpoint
        stored = [self._store(name, take) for name, take in left.items()]
        if all(stored):
            self._tell(Stored(self.errand.token))

    def _store(self, name: str, take: Callable[[], None]) -> bool:
        """Try, ever less often, until it is stored or the directory is gone; False where no try can store it."""
        pause_s, token = _AGAIN_S, self.errand.token
        while True:
            try:
                take()
                return True
            except Exception as error:  # noqa: BLE001 - whatever it is may be over at the next try
                root = self.errand.places.root
                if not os.path.isdir(root):
                    say(f"{token}: what it left was removed, so it is not stored")
                    return True
                if isinstance(error, Replaced):
                    # Not removed: what the job has made may be somewhere else in there.
                    say(
                        f"{token}: {name} is not stored: {error}. What the job left stays in {root}:"
                        " take from it what you need, and remove it"
                    )
                    return False
                say(f"{token}: {name} cannot be stored yet: {error}")
            time.sleep(pause_s)
            pause_s = min(_AGAIN_MOST_S, pause_s * 2)

    def _take(self, output: Output) -> None:
        take_output(output, self.errand, self._tree, self._stores, self._means)

    def _take_checkpoint(self) -> None:
        sync = checkpoint_sync(self.errand, self._means, self._stores, self._on_sync_event)
        if sync is None:
            return
        try:
            synced = sync.flush(time.monotonic() + _FLUSH_S, self._order.killed_at)
        except SupersededError as error:
            say(f"{self.errand.token}: its last checkpoint is not stored: {error}")
            return
        finally:
            sync.close()
        if not synced.is_whole:
            raise CannotBring(synced.alarm or "not everything is in the object store yet")

    def _on_sync_event(self, event: SyncEvent) -> None:
        say(f"{self.errand.token}: {event.kind}: {event.text}")
