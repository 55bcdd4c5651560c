"""The order of copies on a device, with a device that does nothing until somebody waits for it."""

from __future__ import annotations

import pytest

from tests.unit.checkpoint.fake_torch import FakeTorch, Optimizer, Tensor
from windfall.checkpoint.cuda import CudaCopies
from windfall.checkpoint.layout import plan
from windfall.checkpoint.leaves import LeafForm
from windfall.checkpoint.shared_memory import SharedBuffer
from windfall.checkpoint.tiers import Tier

GIB = 1 << 30


class Bench:
    """Three tensors of one size on a device with so much free memory."""

    def __init__(self, tmp_path, free_bytes: int, optimizer: bool = True) -> None:
        self.torch = FakeTorch(free_bytes)
        self.leaves = [Tensor(self.torch, memoryview(bytearray(5000))) for _ in range(3)]
        form = LeafForm("torch", "uint8", (5000,), 5000, "cuda:0")
        self.layout = plan([(str(n), form) for n in range(3)])
        (self.region,) = self.layout.regions
        self.buffer = SharedBuffer(self.layout.size, tmp_path, in_memory=True)
        self.optimizer = Optimizer(self.leaves[:2])
        self.copies = CudaCopies(self.torch, "cuda:0")
        if optimizer:
            self.copies.guard(self.optimizer)
        self.copies.prepare(self.region, guarded=optimizer)

    def begin(self):
        guarded = {leaf.data_ptr() for leaf in self.leaves[:2]}
        pairs = list(zip(self.layout.extents, self.leaves, strict=True))
        return self.copies.begin(
            self.layout, self.region, pairs, self.buffer, lambda leaf: leaf.data_ptr() in guarded
        )

    def held(self) -> set[int]:
        """The values that the snapshot is made of."""
        return {
            value
            for extent in self.layout.extents
            for value in bytes(self.buffer.view[extent.offset : extent.stop])
        }


@pytest.mark.parametrize(
    ("free", "optimizer", "tier"),
    [(2 * GIB, True, Tier.CLONE), (0, True, Tier.OVERLAP), (0, False, Tier.WAIT)],
)
def test_a_snapshot_holds_the_step_before_and_nothing_of_the_step_after(tmp_path, free, optimizer, tier):
    bench = Bench(tmp_path, free, optimizer)
    assert bench.copies.tier is tier
    for value in (1, 3, 5):
        for leaf in bench.leaves:
            leaf.fill(value)  # queued, not done
        transfer = bench.begin()
        bench.leaves[2].fill(value + 1)  # as a forward pass changes a running mean
        bench.torch.compute.synchronize()  # the device may come to it before the copy to the host begins
        if tier is Tier.OVERLAP:
            # The drain thread has come as far as queueing when the optimizer's hook lets the step through.
            transfer.finish()
            bench.optimizer.step(value + 1)
        else:
            bench.optimizer.step(value + 1)
            transfer.finish()
        assert bench.held() == {value}
        bench.torch.compute.synchronize()
        assert all(set(bytes(leaf.memory)) == {value + 1} for leaf in bench.leaves)


def test_an_optimizer_waits_for_a_copy_that_is_not_done(tmp_path):
    bench = Bench(tmp_path, 0)
    for leaf in bench.leaves:
        leaf.fill(7)
    bench.begin()
    overlap = bench.copies._overlap
    assert not overlap.queued.is_set()
    # What the drain thread does, up to the moment before it waits for the device.
    with bench.torch.cuda.stream(bench.copies._stream):
        bench.copies._stream.wait_event(_ready(bench))
        for extent, leaf in zip(bench.layout.extents[:2], bench.leaves[:2], strict=True):
            Tensor(bench.torch, bench.buffer.view[extent.offset : extent.stop]).copy_(leaf)
        overlap.done.record(bench.copies._stream)
    overlap.queued.set()
    bench.optimizer.step(8)
    bench.torch.compute.synchronize()
    first = bench.layout.extents[0]
    assert set(bytes(bench.buffer.view[first.offset : first.stop])) == {7}
    assert set(bytes(bench.leaves[0].memory)) == {8}


def _ready(bench):
    event = bench.torch.cuda.Event()
    event.record(bench.torch.compute)
    return event


def test_the_hooks_are_taken_off_at_the_end(tmp_path):
    bench = Bench(tmp_path, 0)
    assert len(bench.optimizer.hooks) == 1
    bench.copies.guard(bench.optimizer)
    assert len(bench.optimizer.hooks) == 1
    bench.copies.close()
    assert bench.optimizer.hooks == []


def test_no_memory_for_a_clone_falls_back(tmp_path):
    bench = Bench(tmp_path, 2 * GIB)

    def none_left(*_, **__):
        raise MemoryError

    bench.torch.empty = none_left
    bench.copies._flat = None
    bench.copies.prepare(bench.region, guarded=True)
    assert bench.copies.tier is Tier.OVERLAP
