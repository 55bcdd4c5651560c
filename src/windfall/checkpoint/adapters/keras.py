"""Decides how Keras's fit goes on in the middle of an epoch, and when a step boundary is reached.

Keras begins every fit at the first batch of an epoch. So the batches are given as one endless stream whose order is a
function of seed, epoch and position, and an interrupted epoch is finished by a fit of its own. A boundary is the end of
a training batch. Works on Keras's TensorFlow, JAX and PyTorch backends.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from typing import Any

from windfall.checkpoint.frameworks import generators
from windfall.checkpoint.run import Run

_keras: Any = importlib.import_module("keras")


class Stream(_keras.utils.PyDataset):  # type: ignore[misc]  # Keras is not there when types are checked
    """Batch after batch, epoch after epoch, from any position; each epoch in an order of its own."""

    num_batches = None

    def __init__(self, batches: Any, *, start: int, seed: int, shuffle: bool) -> None:
        options = {
            name: getattr(batches, name)
            for name in ("workers", "use_multiprocessing", "max_queue_size")
            if hasattr(batches, name)
        }
        super().__init__(**options)
        self._batches = batches
        self._start = start
        self._seed = seed
        self._shuffle = shuffle
        self._order: tuple[int, Sequence[int]] = (-1, ())

    def __getitem__(self, index: int) -> Any:
        """The batch at a distance from the start; the order of an epoch is kept while it is in use."""
        epoch, position = divmod(self._start + index, len(self._batches))
        ordered_epoch, order = self._order
        if ordered_epoch != epoch:
            order = list(range(len(self._batches)))
            if self._shuffle:
                random.Random(f"{self._seed}/{epoch}").shuffle(order)
            self._order = (epoch, order)
        return self._batches[order[position]]


class CheckpointCallback(_keras.callbacks.Callback):  # type: ignore[misc]  # Keras is not there when types are checked
    """Tells the run about each batch; `fit` adds it."""

    def __init__(self, run: Run, step: int) -> None:
        super().__init__()
        self.run = run
        self.step = step
        #: Generators as they were before Keras began to fetch or to evaluate.
        self.kept: dict[str, Any] | None = None

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 (Keras's form)
        """The first batch of a fit is there; a fit that was not interrupted did not begin here."""
        self._go_back()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 (Keras's form)
        """A resumed run does not repeat an evaluation: it may not draw from the training's generators."""
        self.kept = generators.positions()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 (Keras's form)
        """The evaluation is over."""
        self._go_back()

    def _go_back(self) -> None:
        states, self.kept = self.kept, None
        if states is not None:
            generators.go_back(states)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 (Keras's form)
        """On the JAX backend, asking for the model brings its variables up to date."""
        self.step += 1
        _ = self.model
        self.run.step(self.step, (logs or {}).get("loss"))


def fit(
    model: Any,
    batches: Any,
    run: Run,
    *,
    epochs: int,
    seed: int = 0,
    shuffle: bool = True,
    callbacks: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """Does what model.fit does, from the run's newest checkpoint on, and ends the run; returns the last History.

    `callbacks` stand behind our own: what they do at the end of a batch happens after the step is saved.
    `batches`: anything with len() and [i] that gives batches (a keras.utils.PyDataset); the model must be built.
    """
    run.track(model=model)
    step = run.resume()
    saver = CheckpointCallback(run, step)
    history = None
    while saver.step < epochs * len(batches):
        epoch, position = divmod(saver.step, len(batches))
        saver.kept = generators.positions()
        history = model.fit(
            Stream(batches, start=saver.step, seed=seed, shuffle=shuffle),
            shuffle=False,
            steps_per_epoch=len(batches) - position,
            initial_epoch=epoch,
            epochs=epoch + 1 if position else epochs,
            callbacks=[saver, *callbacks],
            **options,
        )
        if model.stop_training:
            break
    run.done()
    return history
