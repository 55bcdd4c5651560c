"""The snapshot engine: copies state at a step boundary, and has it written by another process.

`take` runs on the training thread and is the whole stall; everything after it happens on the drain thread, in
the writer and on the device. Decides which buffer is used, and refuses a snapshot while one is under way. It
does not decide when to save, and knows state only as named leaves.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windfall.checkpoint import layout as layouts
from windfall.checkpoint.buffers import Buffers, Slot
from windfall.checkpoint.cuda import CudaCopies, Transfer
from windfall.checkpoint.directory import name_of
from windfall.checkpoint.errors import SaveFailed
from windfall.checkpoint.host import copy_leaves
from windfall.checkpoint.leaves import Flattened, Frameworks, Leaf
from windfall.checkpoint.plans import Fitted, Pair, Planner, SavePlan
from windfall.checkpoint.shared_memory import copy_into
from windfall.checkpoint.tiers import Tier
from windfall.checkpoint.writer_link import WriterLink


class Snapshot:
    """One save on its way to the disk; like a future, with seconds."""

    def __init__(self, step: int, directory: Path) -> None:
        self.step = step
        self.path = directory / name_of(step)
        #: Seconds that the training loop was held up: on the host, and on the device.
        self.stall_s = 0.0
        #: Seconds from the call to the durable commit.
        self.durable_s: float | None = None
        self._began = time.monotonic()
        self._error: str | None = None
        self._ended = threading.Event()

    def done(self) -> bool:
        """Whether it is durable or has failed."""
        return self._ended.is_set()

    def result(self, timeout_s: float | None = None) -> Path:
        """Waits for the committed directory; raises SaveFailed, or TimeoutError when the time is over."""
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"the checkpoint of step {self.step} is not durable after {timeout_s:g} s")
        if self._error is not None:
            raise SaveFailed(f"the checkpoint of step {self.step} was not saved: {self._error}")
        return self.path

    def settle(self, error: str | None) -> bool:
        """Ends it, once; False when it had ended before."""
        if self._ended.is_set():
            return False
        self._error = error
        self.durable_s = time.monotonic() - self._began
        self._ended.set()
        return True

    @property
    def error(self) -> str | None:
        """Why it failed, or None."""
        return self._error


@dataclass(slots=True)
class _Work:
    """What the drain thread has left to do for a snapshot."""

    snapshot: Snapshot
    slot: Slot
    plan: SavePlan
    head: dict[str, Any]
    trees: dict[str, Any]
    transfers: list[Transfer] = field(default_factory=list)
    later: list[Pair] = field(default_factory=list)


@dataclass(slots=True)
class _Early:
    """Copies that were queued before the state was looked at, in the hope that it is where it was."""

    plan: SavePlan
    slot: Slot
    transfers: list[Transfer]


@dataclass(slots=True)
class _Remembered:
    """The tensors on devices at the last look, and where they were."""

    plan: SavePlan
    pairs: dict[str, list[Pair]]
    places: list[Any]


Settled = Callable[[Any], bool]
State = Mapping[str, Flattened]


class SnapshotEngine:
    """Buffers, device copies and the writer of one run."""

    def __init__(
        self,
        directory: Path,
        keep: int,
        frameworks: Frameworks,
        ended: Callable[[Snapshot, float], None],
        lock_wait_s: float,
    ) -> None:
        """`ended` is called from another thread with each snapshot and the seconds its writing took."""
        self._directory = directory
        self._keep = keep
        self._lock_wait_s = lock_wait_s
        self._frameworks = frameworks
        self._ended = ended
        self._lock = threading.Lock()
        self._under_way: dict[int, tuple[Snapshot, Slot]] = {}
        #: Whose end is the end of which step. One that no writer has yet fails when it is handed over, if at all.
        self._handed_to: dict[int, WriterLink] = {}
        self._planner = Planner(frameworks.describe)
        self._remembered: _Remembered | None = None
        self._steady = False
        self._texts: dict[str, tuple[Any, str]] = {}
        self._cuda: dict[str, CudaCopies] = {}
        self._devices_free = threading.Event()
        self._devices_free.set()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self.buffers = Buffers(directory)
        self.link = self._new_link()
        self._drain = threading.Thread(target=self._drain_loop, name="windfall-checkpoint-drain", daemon=True)
        self._drain.start()

    def _new_link(self) -> WriterLink:
        return WriterLink(self._directory, self._keep, self._lock_wait_s, self._heard)

    @property
    def busy(self) -> bool:
        """Whether a snapshot is under way."""
        return bool(self._under_way)

    def prepare(self, state: State, optimizers: Sequence[Any], *, steady: bool) -> None:
        """Takes the memory for state of this form before the first save needs it, as far as possible in a thread.

        `steady` says that looking at the state changes none of it, so that a copy may begin before the look.
        """
        self._steady = steady
        fitted = self._plan(state, optimizers)
        self._remember(fitted.plan, fitted.leaves)
        if self._remembered is not None:
            for region in fitted.plan.layout.regions:
                pairs = self._remembered.pairs[region.device]
                self._cuda[region.device].make_views(fitted.plan.layout, region, pairs)

    def take(
        self,
        step: int,
        look: Callable[[], State],
        head: dict[str, Any],
        optimizers: Sequence[Any] = (),
        *,
        began: float,
        wait_s: float | None = None,
    ) -> Snapshot | None:
        """Copies the state as it is now; None when a save is under way, unless there is time to wait for room.

        `began` is the perf_counter at which the loop was first held up for it.
        """
        if not self.link.alive:
            self.link = self._new_link()
        early = self._begin_early()
        slot = early.slot if early is not None else None
        try:
            state = look()
            fitted = self._plan(state, optimizers)
            plan, leaves = fitted.plan, fitted.leaves
            in_place = not fitted.moved or self._is_where_it_was(plan, leaves)
            if not in_place:
                self._remember(plan, leaves)
            if early is not None and early.plan is not plan:
                self.buffers.give_back(early.slot)
                slot = early = None
            if early is None:
                if plan.layout.regions and not self._devices_free.wait(wait_s or 0.0):
                    return None  # the device's clone still holds the snapshot before
                slot = self.buffers.take(plan.layout.size, wait_s)
            if slot is None:
                return None
            snapshot = Snapshot(step, self._directory)
            trees = {name: flattened.tree for name, flattened in state.items()}
            work = _Work(snapshot, slot, plan, {"step": step, **head}, trees)
            if early is not None and in_place:
                work.transfers = early.transfers
            else:
                self._copy_devices(work, leaves, _settled_by(optimizers))
            self._copy_host(work, leaves)
        except BaseException:
            if slot is not None:
                self.buffers.give_back(slot)
            raise
        with self._lock:
            self._under_way[step] = (snapshot, slot)
        self._devices_free.clear()
        snapshot.stall_s = time.perf_counter() - began
        self._queue.put(work)
        return snapshot

    def _plan(self, state: State, optimizers: Sequence[Any]) -> Fitted:
        fitted = self._planner.fit(state)
        if fitted.new:
            layout = fitted.plan.layout
            self._remembered = None
            self._prepare_devices(layout, optimizers)
            device = layout.regions[0].device if layout.regions else None
            self.buffers.prepare(layout.size, device=device)
        return fitted

    def _prepare_devices(self, layout: layouts.Layout, optimizers: Sequence[Any]) -> None:
        torch = sys.modules.get("torch")
        for region in layout.regions:
            copies = self._cuda.get(region.device)
            if copies is None:
                copies = self._cuda[region.device] = CudaCopies(torch, region.device)
            for optimizer in optimizers:
                copies.guard(optimizer)
            copies.prepare(region, guarded=bool(optimizers))

    def _begin_early(self) -> _Early | None:
        """Queues the clone of what was there at the last save, so that the device works while this thread looks."""
        remembered = self._remembered
        if remembered is None or not self._steady or not self._devices_free.is_set():
            return None
        if any(self._cuda[device].tier is not Tier.CLONE for device in remembered.pairs):
            return None
        slot = self.buffers.take(remembered.plan.layout.size, None)
        if slot is None:
            return None
        transfers = [
            self._cuda[region.device].begin(
                remembered.plan.layout, region, remembered.pairs[region.device], slot.buffer, _never
            )
            for region in remembered.plan.layout.regions
        ]
        return _Early(remembered.plan, slot, transfers)

    def _remember(self, plan: SavePlan, leaves: Sequence[Leaf]) -> None:
        if not plan.layout.regions:
            return
        pairs = {
            device: [(extent, leaves[place]) for extent, place in entries]
            for device, entries in plan.on_device.items()
        }
        self._remembered = _Remembered(plan, pairs, _places(plan, leaves))

    def _is_where_it_was(self, plan: SavePlan, leaves: Sequence[Leaf]) -> bool:
        return self._remembered is not None and _places(plan, leaves) == self._remembered.places

    def _copy_devices(self, work: _Work, leaves: Sequence[Leaf], settled: Settled) -> None:
        for region in work.plan.layout.regions:
            pairs = [(extent, leaves[place]) for extent, place in work.plan.on_device[region.device]]
            copies = self._cuda[region.device]
            work.transfers.append(copies.begin(work.plan.layout, region, pairs, work.slot.buffer, settled))

    def _copy_host(self, work: _Work, leaves: Sequence[Leaf]) -> None:
        for extent, place in work.plan.held:
            self._frameworks.start_host_copy(leaves[place])
            work.later.append((extent, leaves[place]))
        copy_leaves(work.plan, leaves, work.slot.buffer, self._frameworks.host_bytes)

    def _drain_loop(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                self._bring_to_host(work)
                self._hand_over(work)
            except Exception as error:  # noqa: BLE001 (the edge of the drain loop: a failed save must not end it)
                self._settle(work.snapshot.step, f"{type(error).__name__}: {error}", 0.0)

    def _bring_to_host(self, work: _Work) -> None:
        try:
            for transfer in work.transfers:
                work.snapshot.stall_s += transfer.finish()
        finally:
            self._devices_free.set()
        for extent, leaf in work.later:
            copy_into(work.slot.buffer.view, self._frameworks.host_bytes(leaf), extent.offset)
        work.later.clear()

    def _hand_over(self, work: _Work) -> None:
        link = self.link
        with self._lock:
            self._handed_to[work.snapshot.step] = link
        number = work.plan.number
        if work.slot.number not in link.images:
            message = {"op": "image", "image": work.slot.number, "size": work.slot.buffer.size}
            link.send(message, [work.slot.buffer.fd])
            link.images.add(work.slot.number)
        if link.layout != number:
            link.send({"op": "layout", "layout": number, "table": work.plan.layout.for_manifest()})
            link.layout = number
        # From here on the snapshot is the writer's: it will be committed whatever becomes of this process.
        message = {"op": "commit", "image": work.slot.number, "layout": number, "head": work.head}
        link.send_text(_joined(json.dumps(message), self._tree_texts(work.trees)))

    def _tree_texts(self, trees: Mapping[str, Any]) -> str:
        """JSON of all trees. That of a tree which is the very one of the last save is not made again, since the
        interpreter does nothing else meanwhile."""
        for name, tree in trees.items():
            remembered = self._texts.get(name)
            if remembered is None or remembered[0] is not tree:
                self._texts[name] = (tree, f"{json.dumps(name)}:{json.dumps(tree, separators=(',', ':'))}")
        return ",".join(self._texts[name][1] for name in trees)

    def _heard(self, link: WriterLink, message: dict[str, Any]) -> None:
        if message["op"] == "durable":
            self._settle(message["step"], None, message["write_s"])
        elif message["op"] == "failed":
            self._settle(message["step"], message["error"], 0.0)
        elif message["op"] == "gone":
            with self._lock:  # another writer may have been started meanwhile: what that one has goes on
                lost = [step for step, held_by in self._handed_to.items() if held_by is link]
            for step in lost:
                self._settle(step, "the checkpoint writer was killed; the next save starts another", 0.0)

    def _settle(self, step: int, error: str | None, write_s: float) -> None:
        with self._lock:
            snapshot, slot = self._under_way.pop(step, (None, None))
            self._handed_to.pop(step, None)
        if snapshot is None or slot is None:
            return
        self.buffers.give_back(slot)
        if snapshot.settle(error):
            self._ended(snapshot, write_s)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until nothing is under way."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for snapshot, _ in list(self._under_way.values()):
            left = None if end is None else max(end - time.monotonic(), 0.0)
            try:
                snapshot.result(left)
            except TimeoutError:
                return False
            except SaveFailed:
                continue
        return True

    def close(self, timeout_s: float) -> None:
        """Hands over what is copied, lets the writer end by itself, and gives the memory back."""
        self._queue.put(None)
        self._drain.join(timeout_s)
        self.link.close(timeout_s)
        for copies in self._cuda.values():
            copies.close()
        self.buffers.close()


def _joined(message: str, trees: str) -> str:
    # The head is the last member of the message; the trees become the last member of the head.
    return f'{message[:-2]},"trees":{{{trees}}}}}}}'


def _never(_: Any) -> bool:
    return False


def _places(plan: SavePlan, leaves: Sequence[Leaf]) -> list[Any]:
    return [
        (leaves[place].data_ptr(), leaves[place].stride())
        for entries in plan.on_device.values()
        for _, place in entries
    ]


def _settled_by(optimizers: Sequence[Any]) -> Settled:
    """Tells leaves that only an optimizer's step changes: its parameters, and its own state."""
    addresses: set[int] = set()

    def settled(leaf: Any) -> bool:
        if not addresses:
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    addresses.update(p.data_ptr() for p in group["params"])
                for values in optimizer.state.values():
                    addresses.update(v.data_ptr() for v in values.values() if hasattr(v, "data_ptr"))
        return leaf.data_ptr() in addresses

    return settled
