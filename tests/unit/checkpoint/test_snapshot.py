"""The engine with an imaginary device and the real writer: what is copied early must be what a full look finds."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from tests.unit.checkpoint.fake_torch import FakeTorch, Tensor
from windfall.checkpoint import reading
from windfall.checkpoint.leaves import Flattened, LeafForm
from windfall.checkpoint.snapshot import SnapshotEngine

SIZE = 6000


def describe(leaf: Tensor) -> LeafForm:
    return LeafForm("torch", "uint8", leaf.shape, leaf.nbytes, "cuda:0")


class Rig:
    def __init__(self, tmp_path) -> None:
        self.torch = FakeTorch(2 << 30)
        self.leaves = {"a": self.tensor(), "b": self.tensor()}
        self.seen: dict[str, Tensor] | None = None
        self.ended: list[int] = []
        frameworks = SimpleNamespace(describe=describe, host_bytes=None)
        self.engine = SnapshotEngine(tmp_path, 10, frameworks, lambda s, _: self.ended.append(s.step), 60)

    def tensor(self) -> Tensor:
        return Tensor(self.torch, memoryview(bytearray(SIZE)))

    def look(self) -> dict[str, Flattened]:
        if self.seen is None or list(self.seen.values()) != list(self.leaves.values()):
            self.seen = dict(self.leaves)  # the same mapping for the same tensors, as the flatten cache gives
        return {"model": Flattened({}, self.seen)}

    def fill(self, value: int) -> None:
        for leaf in self.leaves.values():
            leaf.fill(value)

    def take(self, step: int, wait_s: float | None = 60):
        head = {"saved_at": 0, "final": False}
        return self.engine.take(step, self.look, head, began=time.perf_counter(), wait_s=wait_s)

    def stored(self, snapshot) -> set[int]:
        """The values that the committed checkpoint is made of."""
        path = snapshot.result(200)
        found = reading.read_manifest(path)
        image = memoryview(bytearray(found.size))
        reading.read_image(path, found, image)
        extents = found.leaves.values()
        return {value for extent in extents for value in image[extent.offset : extent.offset + extent.nbytes]}


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = Rig(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", made.torch)
    yield made
    made.engine.close(60)


@pytest.mark.parametrize("steady", [True, False])
def test_the_state_at_the_call_is_what_is_stored(rig, steady):
    rig.engine.prepare(rig.look(), [], steady=steady)
    for step in (1, 2, 3):
        rig.fill(step)
        snapshot = rig.take(step)
        rig.fill(100 + step)
        assert rig.stored(snapshot) == {step}
    assert rig.ended == [1, 2, 3]


def test_an_early_copy_of_a_tensor_that_was_replaced_is_made_again(rig):
    rig.engine.prepare(rig.look(), [], steady=True)
    rig.fill(1)
    assert rig.stored(rig.take(1)) == {1}
    rig.leaves["b"] = rig.tensor()
    rig.fill(2)
    assert rig.stored(rig.take(2)) == {2}


def test_a_replacement_that_was_first_seen_by_a_save_left_out_is_not_forgotten(rig):
    rig.engine.prepare(rig.look(), [], steady=True)
    rig.fill(1)
    assert rig.stored(rig.take(1)) == {1}
    rig.leaves["b"] = rig.tensor()
    held = rig.engine.buffers.take(SIZE, 60)
    assert rig.take(2, wait_s=None) is None
    rig.engine.buffers.give_back(held)
    rig.fill(3)
    assert rig.stored(rig.take(3)) == {3}


def test_state_of_another_form_is_planned_anew(rig):
    rig.engine.prepare(rig.look(), [], steady=True)
    rig.fill(1)
    assert rig.stored(rig.take(1)) == {1}
    rig.leaves["c"] = rig.tensor()
    rig.fill(2)
    assert rig.stored(rig.take(2)) == {2}


def test_a_look_that_fails_leaves_the_engine_free(rig):
    rig.engine.prepare(rig.look(), [], steady=True)
    good, rig.look = rig.look, lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        rig.take(1)
    rig.look = good
    rig.fill(2)
    assert not rig.engine.busy
    assert rig.stored(rig.take(2)) == {2}
