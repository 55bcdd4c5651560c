"""A run: what the training loop holds. Brings tracked objects, snapshots, notices and the clock together.

Decides at each step boundary whether to save, stop or go on. How state is taken apart, copied, written and read is
elsewhere; this module holds no bytes.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from windfall.checkpoint import directory as places
from windfall.checkpoint import files, interval, progress, reading
from windfall.checkpoint.buffers import Slot
from windfall.checkpoint.cursor import Cursor
from windfall.checkpoint.errors import Mismatch, NothingUsable, SaveFailed, WrongUse
from windfall.checkpoint.flatten_cache import FlattenCache, is_plain
from windfall.checkpoint.leaves import Flattened, Frameworks
from windfall.checkpoint.notice import EXIT_CODE, NoticeWatch
from windfall.checkpoint.settings import RunSettings
from windfall.checkpoint.snapshot import Snapshot, SnapshotEngine
from windfall.checkpoint.timing import Batch, SilentClock, TimedBatches
from windfall.checkpoint.watchdog import Watchdog

log = logging.getLogger("windfall.checkpoint")
_RNG = ".rng"
_NEVER = sys.maxsize
Callback = TypeVar("Callback", bound=Callable[[], Any])


class Run:
    """Checkpoints of one training loop in one directory; made by windfall.checkpoint.open."""

    def __init__(self, settings: RunSettings, frameworks: Frameworks) -> None:
        self._settings = settings
        self.directory = settings.directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self._frameworks = files.FilesBeside(frameworks)
        self._flatten_cache = FlattenCache(self._frameworks.flatten)
        self._tracked: dict[str, Any] = {}
        self._patterns: list[str] = []
        self._rng = settings.rng
        self._meter = interval.CostMeter()
        self._progress = progress.Progress(steps=settings.steps)
        self._clock = SilentClock()
        self._step = 0
        self._loss: Any = None
        self._saved: Snapshot | None = None
        self._saved_step: int | None = None
        self._save_began = time.monotonic()
        self._paced = (0, time.monotonic())
        self._resumed = self._prepared = self._closed = self._stopping = self._rebalanced = False
        self._due = False
        #: Seen by every step: anything that needs more than going on.
        self._attention = True
        self._next_step = settings.every.steps or _NEVER
        #: Saves that were left out because the one before was still being written.
        self.skipped = 0
        self._callbacks: list[Callable[[], Any]] = []
        self._owner = os.getpid()
        self._engine = SnapshotEngine(
            self.directory, settings.keep, self._frameworks, self._on_ended, settings.lock_wait_s
        )
        self._watch = NoticeWatch(settings.notice_file, settings.rebalance_file)
        self._watch.wake = self._wake
        self._watch.install()
        self._watchdog = Watchdog(self._watch, self._poll, self._report_progress, self._give_up)
        self._watchdog.start()
        atexit.register(self._at_exit)

    # What a loop calls.

    def track(self, **objects: Any) -> None:
        """Names what makes up the state; `rng=False` leaves the global random generators alone."""
        if isinstance(objects.get("rng"), bool):
            self._rng = objects.pop("rng")
        for name, tracked in objects.items():
            if name in self._tracked:
                raise WrongUse(f"{name!r} is tracked already: give each object a name of its own")
            _make_resumable(name, tracked)
            self._tracked[name] = tracked

    def track_files(self, pattern: str) -> None:
        """Adds plain files below the working directory, by a pattern such as "logs/*.csv"."""
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise WrongUse(f"track_files({pattern!r}): give a pattern below the working directory")
        self._patterns.append(pattern)

    def resume(self) -> int:
        """Puts back the newest whole checkpoint and returns its step; 0 when there is none to put back."""
        self._engine.link.wait_ready()
        self._resumed = True
        damaged: list[int] = []
        slots: list[Slot] = []

        def room(size: int) -> memoryview:
            if slots:
                self._engine.buffers.give_back(slots.pop())
            slots.append(self._engine.buffers.lend(size, device=_cuda_in_use()))
            return slots[-1].buffer.view

        def passed_over(step: int, why: str) -> None:
            damaged.append(step)
            log.warning("the checkpoint of step %d is passed over: %s", step, why)

        try:
            checkpoint = reading.newest_whole(self.directory, room, passed_over)
            if checkpoint is None and damaged:
                raise NothingUsable(
                    f"all checkpoints in {self.directory} are damaged (steps {damaged}): bring back an intact copy, "
                    "or remove them to start at step 0"
                )
            if checkpoint is None:
                return 0
            slots[-1].ready.wait()
            self._put_back(checkpoint, slots[-1].buffer.view)
        finally:
            for slot in slots:
                self._engine.buffers.give_back(slot)
        for step in damaged:
            places.set_aside(self.directory, step)
        self._step = self._saved_step = checkpoint.step
        self._progress.restored_step = self._progress.saved_step = self._progress.step = checkpoint.step
        self._progress.steps_redone = max(self._settings.step_reached - checkpoint.step, 0)
        if self._settings.every.steps is not None:
            self._next_step = checkpoint.step + self._settings.every.steps
        if self._settings.own_directory:
            sys.stderr.write(places.resumed_words(self.directory, checkpoint.step, time.time()) + "\n")
        return checkpoint.step

    def step(self, step: int, loss: Any = None) -> None:
        """Says how many steps are done; may save, and on notice saves and exits with code 143.

        `loss` is shown as the run's progress; a number, or an array of one on the host.
        """
        self._step = step
        self._loss = loss
        if self._attention or step >= self._next_step:
            self._boundary(step)

    def batches(self, loader: Iterable[Batch]) -> TimedBatches[Batch]:
        """The loader's batches; how long the loop waits for them is told with the run's progress."""
        return self._clock.batches(loader)

    def snapshot(self, step: int) -> Snapshot:
        """Saves the state as it is now, whatever the interval; waits for room, not for the disk."""
        return self._save(step, wait_s=self._patience_s())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is being saved; False when the time is over first."""
        return self._engine.wait(timeout_s)

    def done(self, *, save: bool = True) -> None:
        """Ends the run: saves the last step unless that is saved already, and waits until it is durable."""
        if self._closed:
            return
        try:
            if save and self._step > 0 and self._saved_step != self._step:
                self._save(self._step, wait_s=self._patience_s(), final=True).result()
            else:
                self.wait()
        finally:
            self._close()

    @property
    def notice(self) -> float | None:
        """Seconds until the machine is taken away; None while nobody has given notice."""
        return self._watch.left_s

    def on_notice(self, callback: Callback) -> Callback:
        """Calls back on the training thread, at the step boundary, before the last save."""
        self._callbacks.append(callback)
        return callback

    def latest(self) -> Path | None:
        """The newest committed checkpoint; only resume compares all of it with its checksums."""
        steps = places.committed_steps(self.directory)
        return self.directory / places.name_of(steps[0]) if steps else None

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done(save=kind is None)

    # At a step boundary, on the training thread.

    def _boundary(self, step: int) -> None:
        self._attention = False
        if self._progress.first_step_at is None:
            self._progress.first_step_at = _now_ms()
        if not self._prepared:
            self._prepare()
        if self._watch.given and not self._stopping:
            self._stop(step)
            return
        if self._watch.rebalance and not self._rebalanced:
            self._rebalanced = self._due = True
        if self._due or step >= self._next_step:
            self._save_if_idle(step)

    def _prepare(self) -> None:
        if not self._resumed and places.committed_steps(self.directory):
            raise WrongUse(
                f"{self.directory} holds checkpoints: call resume() before the first step(), or open an empty directory"
            )
        self._prepared = True
        steady = all(map(_is_steady, self._tracked.values()))
        self._engine.prepare(self._state(), self._optimizers(), steady=steady)

    def _save_if_idle(self, step: int) -> None:
        self._due = False
        if self._settings.every.steps is not None:
            self._next_step = step + self._settings.every.steps
        if self._engine.busy or self._take(step, wait_s=None) is None:
            self.skipped += 1

    def _save(self, step: int, *, wait_s: float, final: bool = False) -> Snapshot:
        if self._saved is not None and self._saved.step == step and self._saved.error is None:
            return self._saved
        snapshot = self._take(step, wait_s=wait_s, final=final)
        if snapshot is None:
            raise SaveFailed(
                f"step {step} was not saved: the one before it still holds the device after {wait_s:g} s"
            )
        return snapshot

    def _take(self, step: int, *, wait_s: float | None, final: bool = False) -> Snapshot | None:
        began = time.perf_counter()
        if not self._prepared:
            self._prepare()
        head = {**self._settings.head, "saved_at": _now_ms(), "final": final}
        snapshot = self._engine.take(step, self._state, head, self._optimizers(), began=began, wait_s=wait_s)
        self._save_began = time.monotonic()
        if snapshot is not None:
            self._saved = snapshot
        return snapshot

    def _state(self) -> dict[str, Flattened]:
        state = {name: self._flatten_cache.flatten(name, tracked) for name, tracked in self._tracked.items()}
        if self._rng:
            state[_RNG] = self._frameworks.rng_state()
        if self._patterns:
            state[files.NAME] = files.collect(self._settings.root, self._patterns)
        return state

    def _optimizers(self) -> list[Any]:
        return [tracked for tracked in self._tracked.values() if hasattr(tracked, "register_step_pre_hook")]

    def _put_back(self, checkpoint: Any, image: memoryview) -> None:
        missing = [name for name in self._tracked if name not in checkpoint.trees]
        if missing:
            raise Mismatch(
                f"the checkpoint of step {checkpoint.step} in {self.directory} has nothing for {', '.join(missing)}: "
                "track what the run before tracked, under the same names, or open another directory"
            )
        for name in checkpoint.trees:
            if name not in self._tracked and not name.startswith("."):
                log.warning(
                    "the checkpoint has %r, which is not tracked now and will not be saved again", name
                )
        for name, tracked in self._tracked.items():
            self._frameworks.restore(
                tracked, checkpoint.trees[name], reading.leaf_reader(checkpoint, image, name)
            )
        if files.NAME in checkpoint.trees:
            read = reading.leaf_reader(checkpoint, image, files.NAME)
            files.put_back(self._settings.root, checkpoint.trees[files.NAME], read)
        if self._rng and _RNG in checkpoint.trees:
            # Last: building and restoring other objects may have drawn from the generators.
            self._frameworks.set_rng_state(
                checkpoint.trees[_RNG], reading.leaf_reader(checkpoint, image, _RNG)
            )

    def _stop(self, step: int) -> None:
        """Saves within what is left of the notice, and leaves."""
        self._stopping = self._watchdog.at_boundary = True
        for callback in self._callbacks:
            callback()
        left_s = self._patience_s()
        try:
            self._save(step, wait_s=left_s).result(self._patience_s())
            log.info("notice: step %d is saved", step)
        except (SaveFailed, TimeoutError) as error:
            log.warning("notice: %s; the checkpoint before it stands", error)
        self._report_progress()
        if self._settings.exit_on_notice:
            self._close()
            raise SystemExit(EXIT_CODE)

    def _patience_s(self) -> float:
        left_s = self._watch.left_s
        return 3600.0 if left_s is None else max(left_s - 1.0, 1.0)

    # From other threads.

    def _wake(self) -> None:
        self._attention = True

    def _poll(self, now: float) -> None:
        step, since = self._paced
        self._paced = (self._step, now)
        if self._step > step:
            self._meter.ran(self._step - step, now - since, writing=self._engine.busy)
        every = self._settings.every
        if every.steps is None and not self._engine.busy:
            wait_s = every.seconds
            if wait_s is None:
                wait_s = interval.best_interval_s(
                    self._meter.costs(), self._settings.mtbi_s, self._settings.budget
                )
            if now - self._save_began >= wait_s:
                self._due = self._attention = True

    def _on_ended(self, snapshot: Snapshot, write_s: float) -> None:
        self._progress.stall_s += snapshot.stall_s
        if snapshot.error is not None:
            log.warning("the checkpoint of step %d was not saved: %s", snapshot.step, snapshot.error)
            return
        self._meter.saved(snapshot.stall_s, write_s)
        self._saved_step = self._progress.saved_step = snapshot.step

    def _report_progress(self) -> None:
        if self._settings.progress_file is None:
            return
        self._progress.at = _now_ms()
        self._progress.step = self._step
        if self._clock.used:
            self._progress.data_wait_s, self._progress.step_s = self._clock.data_wait_s, self._clock.step_s
        self._progress.loss = progress.as_number(self._loss)
        progress.write(self._settings.progress_file, self._progress)

    def _give_up(self, left_s: float) -> None:
        log.warning("notice: no step boundary came; what is saved stands, and this process ends now")
        self._engine.wait(left_s / 2)
        self._report_progress()
        sys.stdout.flush()
        sys.stderr.flush()

    # The end.

    def _close(self) -> None:
        self._closed = True
        self._watchdog.stop()
        self._report_progress()
        self._watch.uninstall()
        self._engine.close(self._patience_s())
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        if not self._closed and os.getpid() == self._owner:
            self._close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _make_resumable(name: str, tracked: Any) -> None:
    """Let a plain DataLoader of torch, which has no state of its own, go on in the middle of an epoch."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(tracked, data.DataLoader) and not hasattr(tracked, "state_dict"):
        from windfall.checkpoint.adapters.torch_loader import make_resumable

        make_resumable(name, tracked)


def _is_steady(tracked: Any) -> bool:
    """Whether taking an object apart runs no code that could change arrays on a device."""
    torch = sys.modules.get("torch")
    if tracked is None or isinstance(tracked, (str, int, float, Cursor)):
        return True
    if isinstance(tracked, dict):
        return all(map(_is_steady, tracked.values()))
    if isinstance(tracked, list):
        return all(map(_is_steady, tracked))
    if torch is None:
        return False
    if isinstance(tracked, torch.Tensor):
        return True
    return is_plain(tracked) or isinstance(tracked, torch.optim.lr_scheduler.LRScheduler)


def _cuda_in_use() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return f"cuda:{torch.cuda.current_device()}"
