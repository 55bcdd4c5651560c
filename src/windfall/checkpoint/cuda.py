"""Copies of torch tensors on CUDA devices, ordered on the device, so that the training thread hardly notices.

The one module that calls torch, which it is handed and never imports. `begin` runs on the training thread and
only queues work; `finish` runs on the drain thread and waits. It knows layouts and shared buffers, not what the
tensors mean.

Every order that correctness hangs on is an order of streams: a clone is queued behind the optimizer's kernels on
the current stream, the way to the host waits for an event behind that, and in the overlapped tier the
optimizer's next step is queued behind the copy.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from windfall.checkpoint.layout import Extent, Layout, Region
from windfall.checkpoint.shared_memory import SharedBuffer
from windfall.checkpoint.tiers import Tier, choose

#: Size of one copy to the host: about five milliseconds of a bus.
PIECE_BYTES = 256 << 20
#: Above this size one tensor is one copy; below it, many tensors share a kernel.
FUSE_BELOW_BYTES = 64 << 20


@dataclass(slots=True)
class Transfer:
    """A snapshot of one device on its way to the host."""

    tier: Tier
    #: Waits for the device and returns the seconds that the copies took on it.
    finish: Callable[[], float]


@dataclass(slots=True)
class _Overlap:
    """What an optimizer's hook needs: has the copy been queued, and behind which event."""

    done: Any
    queued: threading.Event = field(default_factory=threading.Event)


class CudaCopies:
    """The engine's hand on one device: its flat clone buffer, its side stream and the optimizers' hooks."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device)
        self._flat: Any = None
        self._views: tuple[Layout | None, list[Any]] = (None, [])
        self._overlap: _Overlap | None = None
        self._hooked: dict[int, Any] = {}
        self.tier = Tier.WAIT

    def prepare(self, region: Region, *, guarded: bool) -> None:
        """Chooses a tier for state of this size and takes the device memory that it needs."""
        size = region.stop - region.start
        if self._flat is not None and self._flat.numel() != size:
            self._flat, self._views = None, (None, [])
        free, total = self._torch.cuda.mem_get_info(self._device)
        self.tier = choose(size, free, total, has_buffers=self._flat is not None, guarded=guarded)
        if self.tier is Tier.CLONE and self._flat is None:
            try:
                self._flat = self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
            except self._torch.OutOfMemoryError:
                self.tier = Tier.OVERLAP if guarded else Tier.WAIT

    def guard(self, optimizer: Any) -> None:
        """Makes an optimizer's step wait, on the device, for an overlapped copy that is under way."""
        if id(optimizer) not in self._hooked:
            self._hooked[id(optimizer)] = optimizer.register_step_pre_hook(self._before_step)

    def _before_step(self, *_: Any) -> None:
        overlap = self._overlap
        if overlap is not None:
            overlap.queued.wait()
            self._torch.cuda.current_stream(self._device).wait_event(overlap.done)

    def begin(
        self,
        layout: Layout,
        region: Region,
        work: Sequence[tuple[Extent, Any]],
        target: SharedBuffer,
        settled: Callable[[Any], bool],
    ) -> Transfer:
        """Queues a snapshot of `work`; `settled` says which leaves only an optimizer's step changes."""
        with self._torch.cuda.device(self._device), self._torch.no_grad():
            if self.tier is Tier.CLONE:
                return self._begin_clone(layout, region, work, target)
            if self.tier is Tier.OVERLAP:
                return self._begin_overlap(work, target, settled)
            return self._wait(work, target)

    def _begin_clone(
        self, layout: Layout, region: Region, work: Sequence[tuple[Extent, Any]], target: SharedBuffer
    ) -> Transfer:
        self.make_views(layout, region, work)
        began, ended = self._event(timed=True), self._event(timed=True)
        current = self._torch.cuda.current_stream(self._device)
        began.record(current)
        self._copy_all(self._views[1], [leaf for _, leaf in work])
        ended.record(current)

        def finish() -> float:
            with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._stream):
                self._stream.wait_event(ended)
                self._to_host(target, region)
            return float(began.elapsed_time(ended)) / 1000

        return Transfer(Tier.CLONE, finish)

    def make_views(self, layout: Layout, region: Region, work: Sequence[tuple[Extent, Any]]) -> None:
        """Cuts the clone's memory into the forms of the leaves, once for each layout."""
        if self.tier is Tier.CLONE and self._views[0] is not layout:
            self._views = (layout, [self._view(self._flat, e, leaf, region.start) for e, leaf in work])

    def _to_host(self, target: SharedBuffer, region: Region) -> None:
        # Never more than one piece is queued: a loop that waits for the whole device (torch.cuda.synchronize) then
        # waits for a few milliseconds of this, not for all of it. Few pieces: each needs the interpreter's lock.
        host = self._host(target)[region.start : region.stop]
        for at in range(0, region.stop - region.start, PIECE_BYTES):
            host[at : at + PIECE_BYTES].copy_(self._flat[at : at + PIECE_BYTES], non_blocking=True)
            self._stream.synchronize()

    def _begin_overlap(
        self, work: Sequence[tuple[Extent, Any]], target: SharedBuffer, settled: Callable[[Any], bool]
    ) -> Transfer:
        # What a forward pass may change (running means of a batch norm, say) is cloned now, in order.
        sources = [leaf if settled(leaf) else leaf.clone() for _, leaf in work]
        ready = self._event(timed=False)
        ready.record(self._torch.cuda.current_stream(self._device))
        overlap = _Overlap(self._event(timed=False))
        self._overlap = overlap

        def finish() -> float:
            try:
                with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._stream):
                    self._stream.wait_event(ready)
                    self._leaves_to_host(work, sources, target)
                    overlap.done.record(self._stream)
                    overlap.queued.set()
                    self._stream.synchronize()
            finally:
                overlap.queued.set()
                self._overlap = None
            return 0.0

        return Transfer(Tier.OVERLAP, finish)

    def _wait(self, work: Sequence[tuple[Extent, Any]], target: SharedBuffer) -> Transfer:
        self._leaves_to_host(work, [leaf for _, leaf in work], target)
        self._torch.cuda.current_stream(self._device).synchronize()
        return Transfer(Tier.WAIT, lambda: 0.0)

    def _leaves_to_host(
        self, work: Sequence[tuple[Extent, Any]], sources: Sequence[Any], target: SharedBuffer
    ) -> None:
        host = self._host(target)
        for (extent, _), source in zip(work, sources, strict=True):
            host[extent.offset : extent.stop].copy_(self._flat_bytes(source), non_blocking=True)

    def _flat_bytes(self, leaf: Any) -> Any:
        flat = leaf.detach().contiguous().reshape(-1)
        return flat.view(self._torch.uint8) if flat.numel() else flat.to(self._torch.uint8)

    def _view(self, flat: Any, extent: Extent, leaf: Any, base: int) -> Any:
        start = extent.offset - base
        return flat[start : start + extent.form.nbytes].view(leaf.dtype).view(leaf.shape)

    def _copy_all(self, views: Sequence[Any], leaves: Sequence[Any]) -> None:
        fused: dict[Any, tuple[list[Any], list[Any]]] = {}
        for view, leaf in zip(views, leaves, strict=True):
            if leaf.is_contiguous() and leaf.nbytes < FUSE_BELOW_BYTES and not leaf.is_complex():
                targets, sources = fused.setdefault(leaf.dtype, ([], []))
                targets.append(view)
                sources.append(leaf)
            else:
                view.copy_(leaf, non_blocking=True)
        for targets, sources in fused.values():
            self._torch._foreach_copy_(targets, sources)

    def _host(self, target: SharedBuffer) -> Any:
        if "torch" not in target.views:
            target.views["torch"] = self._torch.frombuffer(target.view, dtype=self._torch.uint8)
        return target.views["torch"]

    def _event(self, *, timed: bool) -> Any:
        return self._torch.cuda.Event(enable_timing=timed)

    def close(self) -> None:
        """Takes the hooks off the optimizers and gives the device memory back."""
        for hook in self._hooked.values():
            hook.remove()
        self._hooked.clear()
        self._flat, self._views = None, (None, [])


def pin(torch: Any, buffer: SharedBuffer, device: str) -> bool:
    """Locks a shared buffer's pages for the device, so that copies run at the bus's speed; False if it cannot."""
    runtime = torch.cuda.cudart()
    # In one piece: a copy that began in one locked range and ended in another would be refused by the driver. And
    # on the job's own device: another one would get a context, and half a gigabyte less memory.
    code = 1
    with contextlib.suppress(RuntimeError), torch.cuda.device(torch.device(device)):
        code = int(runtime.cudaHostRegister(buffer.address, buffer.size, 0))
    if code != 0:
        return False
    buffer.unpin = lambda: runtime.cudaHostUnregister(buffer.address)
    return True
