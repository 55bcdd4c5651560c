"""Decides what of a Lightning Trainer makes up its state, and when a step boundary is reached.

Model, optimizers, schedulers, precision and the progress of the loops (with the position of stateful data loaders,
such as ResumableLoader) are put back in `on_fit_start`, before the first batch is fetched; a boundary is the end of a
training batch at which the optimizer has stepped.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from typing import Any

from windfall.checkpoint.frameworks import generators
from windfall.checkpoint.run import Run

_name = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
_callbacks: Any = importlib.import_module(f"{_name}.callbacks")


class CheckpointCallback(_callbacks.Callback):  # type: ignore[misc]  # Lightning is not there when types are checked
    """`Trainer(callbacks=[CheckpointCallback(run)])`: resumes before fit, saves through the run, ends it after fit."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._boundary = 0
        self._on_sigterm: Any = signal.SIG_DFL
        #: Generators at the last boundary, and at the beginning until the first batch is there.
        self._generators: dict[str, Any] | None = None
        self._begun_at: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """The optimizers are made, no data is fetched yet."""
        self.run.track(model=pl_module, loops=trainer.fit_loop)
        for number, optimizer in enumerate(trainer.optimizers):
            self.run.track(**{f"optimizer{number}": optimizer})
        for number, config in enumerate(trainer.lr_scheduler_configs):
            self.run.track(**{f"scheduler{number}": config.scheduler})
        if trainer.precision_plugin.state_dict():
            self.run.track(precision=trainer.precision_plugin)
        self.run.resume()
        self._boundary = trainer.global_step
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, *_: Any) -> None:
        """Lightning has taken SIGTERM over by now, to end between any two batches; a run ends at a boundary.

        And a run that was interrupted at the end of an epoch prepares a validation before its first batch.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)
        self._begun_at = self._generators = generators.positions()

    def on_train_batch_start(self, *_: Any) -> None:
        """The first batch is there."""
        if self._begun_at is not None:
            generators.go_back(self._begun_at)
            self._begun_at = None

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        """Between batches of one accumulated gradient there is no boundary."""
        if trainer.enable_validation:
            self._generators = generators.positions()
        if trainer.global_step > self._boundary:
            self._boundary = trainer.global_step
            self.run.step(self._boundary, outputs.get("loss") if isinstance(outputs, dict) else outputs)

    def on_validation_end(self, *_: Any) -> None:
        """Whether a resumed run repeats a validation or not, training goes on with the same random numbers."""
        states, self._generators = self._generators, None
        if states is not None:
            generators.go_back(states)

    def on_fit_end(self, *_: Any) -> None:
        """Saves the last step and waits until it is durable."""
        self.run.done()
