"""The committed checkpoints of a job, as one list over all nodes that write to its prefix.

Decides what each is worth: whether all of its pieces are there, and whether an attempt that had lost the job wrote it.
Manifests are read by the code that attempts restore with. Must not print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from windfall.agent.sync.errors import DamagedError
from windfall.agent.sync.manifests import Manifest, Order, decode
from windfall.agent.sync.shared_prefix import Neighbour, neighbours
from windfall.cli.stored import StoredPart
from windfall.objects.errors import NotFound
from windfall.objects.port import ObjectStore

#: A manifest of a million files has about 150 MB.
_LARGEST_BYTES = 1 << 30
#: No writer's own number, so that all writers are others.
_NOBODY = -1


class MarkState(StrEnum):
    """What a checkpoint is worth."""

    COMPLETE = "complete"
    #: Its manifest cannot be read.
    DAMAGED = "damaged"
    #: Some of its pieces are missing.
    INCOMPLETE = "incomplete"
    #: Written by an attempt after the next one had begun; a newer attempt's checkpoints win.
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class ListedMark:
    """One committed checkpoint of one node."""

    writer: Neighbour
    order: Order
    state: MarkState
    #: None where it cannot be read.
    manifest: Manifest | None = None
    #: What is wrong with it.
    problem: str = ""

    @property
    def title(self) -> str:
        """What a person calls it."""
        if self.manifest is None:
            return "?"
        step = self.manifest.step
        return self.manifest.name if step is None else f"step {step:,}"

    def is_called(self, text: str) -> bool:
        """Whether a person means it: by its step, or by its name."""
        if self.manifest is None:
            return False
        step = "" if self.manifest.step is None else str(self.manifest.step)
        return text in (step, self.manifest.name) or text.replace(",", "") == step != ""


def marks_of(part: StoredPart) -> list[ListedMark]:
    """All committed checkpoints below a job's prefix, newest first."""
    # Only what is read of a store is used.
    writers = neighbours(cast(ObjectStore, part), _NOBODY)
    marks = [_mark(part, writer, order) for writer in writers for order in writer.orders]
    return sorted(marks, key=lambda mark: (mark.order, -mark.writer.writer), reverse=True)


def _mark(part: StoredPart, writer: Neighbour, order: Order) -> ListedMark:
    try:
        if part.bytes_of(writer.objects.place_of(order.key)) > _LARGEST_BYTES:
            raise DamagedError(f"{order.key} is too large to be a manifest")
        manifest = decode(writer.objects.get(order.key), order)
    except (DamagedError, NotFound) as error:
        return ListedMark(writer, order, MarkState.DAMAGED, problem=str(error))
    lengths = manifest.piece_bytes()
    missing = sum(writer.pieces.get(digest) != size for digest, size in lengths.items())
    if missing:
        problem = f"{missing:,} of {len(lengths):,} pieces are missing"
        return ListedMark(writer, order, MarkState.INCOMPLETE, manifest, problem)
    later = [other.fence for other in writer.orders if other.fence > order.fence]
    if later and manifest.at > min(later):
        return ListedMark(writer, order, MarkState.SUPERSEDED, manifest)
    return ListedMark(writer, order, MarkState.COMPLETE, manifest)


def chosen(marks: Sequence[ListedMark], at: str | None) -> list[ListedMark]:
    """The newest usable checkpoint of each node, or the newest that is called so."""
    usable: dict[int, ListedMark] = {}
    for mark in marks:
        fits = mark.is_called(at) if at is not None else mark.state is not MarkState.INCOMPLETE
        if fits and mark.manifest is not None:
            usable.setdefault(mark.writer.writer, mark)
    return list(usable.values())
