"""The shared buffers of one run: at most two, made ready in a thread, taken and given back.

A second buffer is made only when somebody waits for one (a save on notice while the last one is still being
written), and only if memory allows. Nothing here knows what is put into them.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from windfall.checkpoint import cuda
from windfall.checkpoint.errors import SaveFailed
from windfall.checkpoint.shared_memory import SharedBuffer, fits_in_memory

#: A buffer up to this size is taken page by page as it is filled; larger ones are made ready in a thread.
_AT_ONCE_BYTES = 64 << 20


@dataclass(slots=True)
class Slot:
    """A buffer and whether somebody uses it."""

    #: Never used again for another buffer: the writer knows buffers by it.
    number: int
    buffer: SharedBuffer
    ready: threading.Event
    taken: bool = False


class Buffers:
    """All shared memory of one run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._slots: list[Slot] = []
        self._changed = threading.Condition()
        self._made = 0
        #: The CUDA device whose driver locks the pages; None where no device is in use.
        self._device: str | None = None

    def prepare(self, size: int, *, device: str | None) -> None:
        """Sees to it that one buffer of this size is there or being made."""
        with self._changed:
            self._device = device
            self._drop_small(size)
            if not self._slots:
                self._slots.append(self._make(size))

    def _make(self, size: int) -> Slot:
        buffer = SharedBuffer(size, self._directory, in_memory=fits_in_memory(size))
        self._made += 1
        slot = Slot(self._made, buffer, threading.Event())
        if size <= _AT_ONCE_BYTES and self._device is None:
            slot.ready.set()
            return slot
        name = "windfall-checkpoint-buffers"
        threading.Thread(target=self._ready, args=(slot, self._device), name=name, daemon=True).start()
        return slot

    def _ready(self, slot: Slot, device: str | None) -> None:
        try:
            slot.buffer.populate()
            torch = sys.modules.get("torch")
            if device is not None and torch is not None:
                cuda.pin(torch, slot.buffer, device)
        finally:
            slot.ready.set()
            with self._changed:
                self._changed.notify_all()

    def _drop_small(self, size: int) -> None:
        for slot in [slot for slot in self._slots if slot.buffer.size < size and not slot.taken]:
            self._slots.remove(slot)
            if slot.ready.is_set():
                slot.buffer.close()

    def take(self, size: int, wait_s: float | None) -> Slot | None:
        """A free, ready buffer; None when there is none now and the caller does not wait."""
        end = time.monotonic() + (wait_s or 0.0)
        with self._changed:
            while True:
                self._drop_small(size)
                fitting = [slot for slot in self._slots if slot.buffer.size >= size]
                for slot in fitting:
                    if not slot.taken and slot.ready.is_set():
                        slot.taken = True
                        return slot
                if wait_s is None:
                    return None
                # All are in use: one more, if that leaves the job enough room.
                if all(slot.taken for slot in fitting) and len(self._slots) < 2 and fits_in_memory(size):
                    self._slots.append(self._make(size))
                left = end - time.monotonic()
                if left <= 0:
                    raise SaveFailed(
                        f"no room for a snapshot after {wait_s:g} s: the last one is being written"
                    )
                self._changed.wait(left)

    def lend(self, size: int, *, device: str | None) -> Slot:
        """A buffer to read a checkpoint into; usable at once, while its pages are still being locked."""
        self.prepare(size, device=device)
        with self._changed:
            slot = next(slot for slot in self._slots if slot.buffer.size >= size)
            slot.taken = True
            return slot

    def give_back(self, slot: Slot) -> None:
        """Makes a buffer free for the next snapshot."""
        with self._changed:
            slot.taken = False
            self._changed.notify_all()

    def close(self) -> None:
        """Gives all memory up that is not in use."""
        with self._changed:
            for slot in self._slots:
                if slot.ready.is_set() and not slot.taken:
                    slot.buffer.close()
            self._slots = []
