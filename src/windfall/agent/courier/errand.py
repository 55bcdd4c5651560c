"""One staged attempt in the courier: a thread that brings and watches, and another that finishes.

Decides what happens in which order and what is reported. Orders may come at any time and again; `finish` must come to
an end at its deadline even while the store hangs, so it waits for its work without being the one that does it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from windfall.agent.courier.bringing import Bringing, Brought
from windfall.agent.courier.errors import CalledOff, CannotBring
from windfall.agent.courier.feeder import failed_path
from windfall.agent.courier.imds import Facts, MetadataService
from windfall.agent.courier.means import Means, OwnMeans
from windfall.agent.courier.messages import (
    Broken,
    Dropped,
    Errand,
    Finish,
    Finished,
    Line,
    Prepared,
    PrepareFailed,
)
from windfall.agent.courier.metadata import LOOPBACK, MetadataServer
from windfall.agent.courier.newsboard import Newsboard
from windfall.agent.courier.progress import MOST_BYTES, parse_progress
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.taking import (
    checkpoint_sync,
    read_failure,
    take_output,
    wanted_outputs,
    wants_checkpoint,
)
from windfall.agent.courier.tree import Tree
from windfall.agent.errors import AgentError
from windfall.agent.places import NOTICE, PROGRESS, REBALANCE
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say
from windfall.agent.sync.checkpoint_sync import CheckpointSync
from windfall.agent.sync.errors import SupersededError
from windfall.agent.sync.reports import Happening, SyncEvent
from windfall.jobs.staging import Output
from windfall.objects.errors import ObjectsError
from windfall.objects.port import ObjectStore

#: How long an object store may be away before an attempt that needs it is refused.
_BRING_WITHIN_S = 600.0
#: How long the store may take nothing, because it is away, full or refuses, while what a process left is saved. After
#: that the place is free, and what is wanted is kept on disk and stored later.
_SAVE_UNTAKEN_S = 600.0
_PASS_EVERY_S = 1.0
#: Looking at many files takes a part of the time, not all of it.
_PASS_SHARE = 4
_TIME_WAS_UP = "the time was up before everything was in the object store"
#: Not evenly: a program that writes once a second would be met in the middle of it each time.
_PAUSES = (1.0, 0.8, 1.1, 0.9, 1.2)
_LOOK_AT_ORDERS_EVERY_S = 0.05


class RunningErrand:
    """What is being done for one attempt."""

    def __init__(
        self,
        errand: Errand,
        settings: AgentSettings,
        tell: Callable[[Line], None],
        opener: Callable[[str], ObjectStore] | None = None,
        means: Means | None = None,
    ) -> None:
        self.errand = errand
        self.board = Newsboard(errand.token, tell)
        self._settings = settings
        self._tell = tell
        self._means = means or OwnMeans(errand, settings)
        self._tree = Tree(self._means.near(errand.places.root), errand.owner)
        self._stores = self._means.stores() if opener is None else Stores(None, errand.storage, opener)
        self._sync: CheckpointSync | None = None
        self._sync_lock = threading.Lock()
        self._server: MetadataServer | None = None
        self.service = self._metadata()
        self._worker: threading.Thread | None = None
        self._order: Finish | None = None
        #: Set when the watching thread has to end.
        self._leave = threading.Event()
        self._saved = threading.Event()
        self._pipes = any(channel.mode == "Pipe" for channel in errand.places.staging.channels)
        self._broken = False
        #: Wanted outputs that are not in the store yet, and why.
        self._unstored: dict[Output, str] = {}
        #: Why the last checkpoint is not in the store though it is wanted; None where it is.
        self._unstored_checkpoint: str | None = None

    # --- orders --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Bring everything, report, and go on to watch."""
        self._begin(self._prepare_and_watch)

    def watch(self, port: int) -> None:
        """Watch a process that runs already, or is about to."""
        if self._worker is None:
            self._serve_metadata(port)
            self._begin(self._watch)

    def finish(self, order: Finish) -> None:
        """Save what is left; a repetition replaces the order that is being carried out."""
        first = self._order is None
        self._order = order
        self._leave.set()
        if first:
            threading.Thread(target=self._finish, name="finish", daemon=True).start()

    def drop(self) -> None:
        """Stop everything and report when nothing of the attempt is touched any more."""
        self._leave.set()
        self._stores.cut()
        threading.Thread(target=self._dropped, name="drop", daemon=True).start()

    def close(self) -> None:
        """Let go of what was kept open; all has been told."""
        self._means.close()

    def tick(self) -> None:
        """Read the progress file and pass news on, if there are any; called once a second."""
        if self._worker is not None and not self._leave.is_set():
            self.board.progress = parse_progress(self._tree.read(PROGRESS, MOST_BYTES)) or self.board.progress
            self._look_at_feeder()
        self.board.publish()

    def _look_at_feeder(self) -> None:
        if not self._pipes or self._broken:
            return
        reason = self._tree.read(failed_path(self.errand), 1 << 12)
        if reason:
            self._broken = True
            self._tell(Broken(self.errand.token, reason.decode(errors="replace")))

    def _begin(self, work: Callable[[], None]) -> None:
        self._worker = threading.Thread(target=work, name=self.errand.token, daemon=True)
        self._worker.start()

    # --- bringing and watching -----------------------------------------------------------------------

    def _prepare_and_watch(self) -> None:
        token = self.errand.token
        try:
            brought = self._bring()
            port = self._serve_metadata(0)
        except CalledOff:
            return
        except (AgentError, ObjectsError) as error:
            self._fail(str(error))
            return
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the attempt must not wait for ever
            self._fail(f"what the job needs cannot be brought: {error}")
            return
        if brought.passed_over:
            # Until this attempt has a sound one of its own.
            text = f"a damaged checkpoint was passed over for the one before it: {brought.passed_over[0]}"
            self.board.complain("restored", text)
        self.board.set(doing=None, restored=brought.restored, commit=brought.commit)
        self.board.publish(at_once=True)
        self._tell(Prepared(token, _now_ms(), port))
        self._watch()

    def _fail(self, reason: str) -> None:
        say(f"{self.errand.token}: {reason}")
        self._close()
        self._tell(PrepareFailed(self.errand.token, reason))

    def _bring(self) -> Brought:
        deadline = time.monotonic() + _BRING_WITHIN_S

        def insist(work: Callable[[], None]) -> None:
            self._stores.insist(work, deadline, lambda text: self.board.complain("store", text))

        def doing(text: str) -> None:
            self.board.set(doing=text)
            self.board.publish()

        tools = (self._means, self._stores, self._tree)
        bringing = Bringing(self.errand, self._settings, *tools, doing, insist)
        return bringing.bring(self._checkpoints(), deadline)

    def _watch(self) -> None:
        """Pass over the checkpoint directory about once a second until told otherwise."""
        sync = self._checkpoints()
        pauses = itertools.cycle(_PASS_EVERY_S * part for part in _PAUSES)
        took_s = 0.0
        while sync is not None and not self._leave.wait(max(next(pauses), _PASS_SHARE * took_s)):
            began = time.monotonic()
            try:
                synced = sync.pass_once()
            except CalledOff:
                return
            except SupersededError as error:
                self.board.complain("checkpoints", str(error))
                return
            except Exception as error:  # noqa: BLE001 - the edge of a loop: the next pass may be luckier
                say(f"{self.errand.token}: {error!r}")
                self.board.complain("checkpoints", f"checkpoints cannot be stored: {error}")
                continue
            finally:
                took_s = time.monotonic() - began
            self.board.complain("checkpoints", synced.alarm)
            self.board.set(checkpoint=synced.mark)

    def _checkpoints(self) -> CheckpointSync | None:
        """Return the sync of the checkpoint directory, None when the attempt has none."""
        with self._sync_lock:
            if self._sync is None:
                self._sync = checkpoint_sync(self.errand, self._means, self._stores, self._on_sync_event)
            return self._sync

    def _on_sync_event(self, event: SyncEvent) -> None:
        say(f"{self.errand.token}: {event.kind}: {event.text}")
        if event.kind is Happening.COMMITTED:
            self.board.complain("restored", None)
        elif event.kind is Happening.LEFT_OUT and self._order is None:
            self.board.complain("left out", event.text)
        elif event.kind is Happening.FAILING:
            self.board.complain("checkpoints", event.text)
        elif event.kind is Happening.RECOVERED:
            self.board.complain("checkpoints", None)

    # --- finishing -----------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Wait for the saving, but no longer than the latest order allows."""
        self._close()
        began = time.monotonic()
        assert self._order is not None
        self._unstored = dict.fromkeys(wanted_outputs(self._order), _TIME_WAS_UP)
        if wants_checkpoint(self._order) and self._checkpoints() is not None:
            self._unstored_checkpoint = _TIME_WAS_UP
        threading.Thread(target=self._save, name="save", daemon=True).start()
        while not self._saved.wait(_LOOK_AT_ORDERS_EVERY_S):
            order = self._order
            assert order is not None
            untaken_s = time.monotonic() - max(self._stores.took_at, began)
            if order.lose:
                break
            if _now_ms() >= order.deadline_at or untaken_s >= _SAVE_UNTAKEN_S:
                self.board.complain("saving", _TIME_WAS_UP)
                break
        self._stores.cut()
        if self._sync is not None:
            self._sync.close()
        order = self._order
        assert order is not None
        self.board.set(doing=None)
        self.board.publish(at_once=True)
        failure = None if order.exit_code == 0 else read_failure(self.errand, self._tree)
        board = self.board
        unstored = {} if order.lose else {one.uri: why for one, why in self._unstored.items()}
        checkpoints = self.errand.places.staging.checkpoints
        lacks_checkpoint = self._unstored_checkpoint is not None and wants_checkpoint(order)
        if lacks_checkpoint and checkpoints is not None:
            unstored[checkpoints.uri] = f"the last checkpoint: {self._unstored_checkpoint}"
        self._tell(
            Finished(
                self.errand.token,
                board.checkpoint,
                board.progress,
                failure,
                unstored=() if order.lose else tuple(self._unstored),
                unstored_checkpoint=lacks_checkpoint,
                why_unstored=next((f"{uri}: {why}" for uri, why in unstored.items()), None),
            )
        )

    def _save(self) -> None:
        try:
            self._save_checkpoints()
            self._save_outputs()
        except CalledOff:
            return
        except (AgentError, ObjectsError, OSError) as error:
            self.board.complain("saving", f"what the job left cannot be stored: {error}")
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the attempt must not wait for ever
            say(f"{self.errand.token}: {error!r}")
            self.board.complain("saving", f"what the job left cannot be stored: {error!r}")
        finally:
            self._saved.set()

    def _save_checkpoints(self) -> None:
        order = self._order
        assert order is not None
        sync = None if order.lose else self._checkpoints()
        if sync is None:
            return
        self.board.set(doing="storing the last checkpoint")
        self.board.publish()
        try:
            synced = sync.flush(_monotonic(order.deadline_at), order.killed_at)
        except SupersededError as error:
            self._unstored_checkpoint = None
            self.board.complain("checkpoints", str(error))
            return
        self._unstored_checkpoint = None if synced.is_whole else synced.alarm or _TIME_WAS_UP
        self.board.complain("checkpoints", synced.alarm)
        self.board.set(checkpoint=synced.mark)

    def _save_outputs(self) -> None:
        order = self._order
        assert order is not None
        deadline = _monotonic(order.deadline_at)
        for output in wanted_outputs(order):
            self.board.set(doing=f"storing {output.path}")
            self.board.publish()
            try:
                self._stores.insist(
                    lambda output=output: self._take(output),  # type: ignore[misc]  # bound in the loop
                    deadline,
                    lambda text: self.board.complain("store", text),
                    full_until=time.monotonic() + _SAVE_UNTAKEN_S,
                )
            except (ObjectsError, CannotBring, OSError) as error:
                self._unstored[output] = str(error)
                kept = f"it is kept in {self.errand.source_of(output)} and stored when it can be"
                self.board.complain(output.path, f"{output.path} could not be stored: {error}; {kept}")
            else:
                self._unstored.pop(output, None)

    def _take(self, output: Output) -> None:
        take_output(output, self.errand, self._tree, self._stores, self._means)

    # --- the rest ------------------------------------------------------------------------------------

    def _metadata(self) -> MetadataService:
        return MetadataService(
            Facts(
                instance=self.errand.instance,
                instance_type=self.errand.instance_type,
                market=self.errand.market,
                region=self.errand.region,
                notice=lambda: self._tree.read(NOTICE, 1 << 14),
                rebalance=lambda: self._tree.read(REBALANCE, 1 << 14),
            )
        )

    def _serve_metadata(self, port: int) -> int:
        try:
            self._server = MetadataServer((LOOPBACK, port), lambda _: self.service)
        except OSError as error:
            if port == 0:
                raise
            self.board.complain(
                "metadata", f"instance metadata cannot be served at port {port} again: {error}"
            )
            return port
        return self._server.port

    def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            # Not waited for: it takes a moment to notice, and a place waits for this attempt's end.
            threading.Thread(target=server.close, name="closing", daemon=True).start()
        if self._pipes:
            self._means.kill_porters()

    def _dropped(self) -> None:
        if self._worker is not None:
            self._worker.join()
        if self._sync is not None:
            self._sync.close()
        self._close()
        self._tell(Dropped(self.errand.token))


def _monotonic(at: int) -> float:
    """Turn a time of day into one of the clock that nobody sets."""
    return time.monotonic() + (at - _now_ms()) / 1000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
