"""Decides where in an epoch a DataLoader goes on after an interruption, without reading what was trained on already.

The state is the number of batches handed out and the position of the random generators when the epoch began; from
those the same order is drawn again and the batches that were used are skipped as indices. Batches that workers had
fetched ahead are fetched again. Not known here: the dataset's own randomness in worker processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from windfall.checkpoint.errors import NotTrackable
from windfall.checkpoint.frameworks import generators

torch: Any = importlib.import_module("torch")
_data: Any = importlib.import_module("torch.utils.data")


class ResumableLoader(_data.DataLoader):  # type: ignore[misc]  # torch is not there when types are checked
    """A DataLoader over a map-style dataset, with the usual arguments, that also has state_dict and load_state_dict."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        sampler: Any = None,
        drop_last: bool = False,
        generator: Any = None,
        **options: Any,
    ) -> None:
        if sampler is None:
            sampler = (
                _data.RandomSampler(dataset, generator=generator)
                if shuffle
                else _data.SequentialSampler(dataset)
            )
        self._begin(_SkippingBatches(sampler, batch_size, drop_last))
        super().__init__(dataset, batch_sampler=self._batches, generator=generator, **options)

    def _begin(self, batches: _SkippingBatches) -> None:
        self._batches = batches
        self._begun_at: dict[str, Any] | None = None
        self._yielded = 0
        self._pending: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        """One epoch, or what is left of the one in which the stored run was interrupted."""
        here = self._generators()
        pending, self._pending = self._pending, None
        self._begun_at = here if pending is None else pending["begun_at"]
        self._batches.skip = self._yielded = 0 if pending is None else pending["yielded"]
        if pending is not None:
            self._set_generators(pending["begun_at"])
        iterator = super().__iter__()  # draws the order and the workers' seed
        self._batches.skip = 0
        if pending is not None:
            self._set_generators({**here, "own": None})
        return self._counted(iterator)

    def _counted(self, iterator: Any) -> Iterator[Any]:
        for batch in iterator:
            self._yielded += 1
            yield batch
        self._yielded, self._begun_at = 0, None

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is: after the last batch of an epoch that is the beginning of the next."""
        if self._pending is not None:
            return self._pending
        if self._begun_at is None or self._yielded == 0 or self._yielded >= len(self):
            return {"yielded": 0, "begun_at": None}
        return {"yielded": self._yielded, "begun_at": self._begun_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next epoch that is begun goes on where the state says."""
        self._pending = state if state["yielded"] else None

    def _generators(self) -> dict[str, Any]:
        state = generators.positions()
        state["torch"].pop("cuda", None)  # no order is drawn on a GPU
        own = getattr(self, "generator", None)
        return {**state, "own": None if own is None else own.get_state()}

    def _set_generators(self, state: dict[str, Any]) -> None:
        generators.go_back(state)
        if state["own"] is not None and self.generator is not None:
            self.generator.set_state(state["own"])


def make_resumable(name: str, loader: Any) -> None:
    """Turn a plain DataLoader into a ResumableLoader, in place; raises NotTrackable with what to write instead."""
    if isinstance(loader.dataset, _data.IterableDataset):
        raise NotTrackable(
            f"run.track({name}=...): it is a DataLoader over an iterable dataset, which alone knows how far it was"
            " read. Track an object with state_dict() and load_state_dict() that knows it, or use torchdata's"
            " StatefulDataLoader."
        )
    if type(loader) is not _data.DataLoader or type(loader.batch_sampler) is not _data.BatchSampler:
        raise NotTrackable(
            f"run.track({name}=...): it is a DataLoader with a class, a batch_sampler or a batch_size of its own, whose"
            " position cannot be stored. Write: from windfall.checkpoint.adapters.torch_loader import ResumableLoader;"
            f" {name} = ResumableLoader(dataset, batch_size=32, shuffle=True)"
        )
    if loader._iterator is not None:  # noqa: SLF001 (nothing else tells that its workers have been started)
        raise NotTrackable(
            f"run.track({name}=...): an epoch of this DataLoader was begun already. Track it before its first batch."
        )
    batches = _SkippingBatches(loader.sampler, loader.batch_size, loader.drop_last)
    # torch refuses to set it once the loader is made.
    loader.__dict__["batch_sampler"] = batches
    loader.__class__ = ResumableLoader
    loader._begin(batches)  # noqa: SLF001 (it is one of ours now)


class _SkippingBatches(_data.BatchSampler):  # type: ignore[misc]  # torch is not there when types are checked
    """Draws its first batch at once, so that the order is drawn at the same moment, with batches to skip or without."""

    skip = 0

    def __iter__(self) -> Iterator[list[int]]:
        batches = super().__iter__()
        for _ in range(self.skip):
            next(batches)
        return _after(next(batches, None), batches)


def _after(first: list[int] | None, rest: Iterator[list[int]]) -> Iterator[list[int]]:
    if first is not None:
        yield first
        yield from rest
