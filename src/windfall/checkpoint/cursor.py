"""A position in a shuffled data set that is three numbers: the order is a function of seed and epoch.

Nothing is replayed on resume and no permutation is kept: the place of sample i in an epoch is computed by a small
Feistel network, walked until it falls inside of the data set. Knows indices only, neither samples nor frameworks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from windfall.checkpoint.errors import Mismatch, WrongUse

Batch = TypeVar("Batch")
_ROUNDS = 4


class Cursor:
    """Yields batches of indices; `state_dict` says how many samples have been consumed, and of which epoch."""

    def __init__(
        self,
        length: int,
        *,
        batch_size: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        if length < 1 or batch_size < 1:
            raise WrongUse("a Cursor needs a length and a batch_size of at least 1")
        self.length = length
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.epoch = 0
        #: Samples of this epoch that have been consumed.
        self.position = 0
        half = max(((length - 1).bit_length() + 1) // 2, 1)
        self._half = half
        self._mask = (1 << half) - 1

    @property
    def _usable(self) -> int:
        return self.length - self.length % self.batch_size if self.drop_last else self.length

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return (self._usable + self.batch_size - 1) // self.batch_size

    def index(self, place: int, epoch: int | None = None) -> int:
        """The sample at a place in the order of an epoch."""
        if not self.shuffle:
            return place
        keys = self._keys(self.epoch if epoch is None else epoch)
        value = place
        while True:
            left, right = value >> self._half, value & self._mask
            for key in keys:
                mixed = (right * 0x9E3779B97F4A7C15 + key) & 0xFFFFFFFFFFFFFFFF
                mixed = ((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
                left, right = right, left ^ ((mixed >> 32) & self._mask)
            value = (left << self._half) | right
            if value < self.length:
                return value

    def _keys(self, epoch: int) -> tuple[int, ...]:
        digest = hashlib.blake2b(
            f"{self.seed}/{epoch}/{self.length}".encode(), digest_size=8 * _ROUNDS
        ).digest()
        return tuple(int.from_bytes(digest[8 * n : 8 * n + 8], "little") for n in range(_ROUNDS))

    def _batch(self, epoch: int, position: int) -> list[int]:
        stop = min(position + self.batch_size, self._usable)
        return [self.index(place, epoch) for place in range(position, stop)]

    def __iter__(self) -> Iterator[list[int]]:
        """The rest of the current epoch; a batch counts as consumed when it is handed out."""
        while self.position < self._usable:
            batch = self._batch(self.epoch, self.position)
            self.position += len(batch)
            yield batch
        self.epoch += 1
        self.position = 0

    def ahead(self) -> Iterable[list[int]]:
        """The same batches without moving the position: the batch_sampler of a loader that reads ahead."""
        return _Ahead(self)

    def through(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Hands out a loader's batches (made of `ahead`) and counts those that the loop has really got."""
        for batch in loader:
            self.position = min(self.position + self.batch_size, self._usable)
            yield batch
        self.epoch += 1
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        """Epoch, position, and what they mean something for."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "length": self.length,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to a stored position; the data set must be the same, the batch size need not."""
        if state["length"] != self.length:
            raise Mismatch(
                f"the checkpoint was made with {state['length']} samples, this Cursor has {self.length}: the "
                "order would be another one; use the same data set or open another directory"
            )
        self.seed = state["seed"]
        self.shuffle = state["shuffle"]
        self.epoch = state["epoch"]
        self.position = state["position"]


class _Ahead:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def __len__(self) -> int:
        return len(self._cursor)

    def __iter__(self) -> Iterator[list[int]]:
        cursor = self._cursor
        epoch, position = cursor.epoch, cursor.position
        while position < cursor._usable:  # noqa: SLF001 (two halves of one class)
            batch = cursor._batch(epoch, position)  # noqa: SLF001 (as above)
            position += len(batch)
            yield batch
