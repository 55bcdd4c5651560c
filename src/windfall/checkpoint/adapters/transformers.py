"""Decides how a Hugging Face Trainer resumes from a run, and when a step boundary is reached.

The Trainer learns only the step from its own machinery, so that it counts and skips batches as ever; weights,
optimizer, scheduler, counters and generators come from the run. A boundary is `on_step_end` and nothing else: inside
of a step random numbers have been drawn that a resumed run would draw again.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windfall.checkpoint.errors import Mismatch
from windfall.checkpoint.frameworks import generators
from windfall.checkpoint.run import Run

_transformers: Any = importlib.import_module("transformers")
_callback: Any = importlib.import_module("transformers.trainer_callback")

#: What a resumed Trainer cannot count anew by itself.
_COUNTERS = (
    "epoch",
    "global_step",
    "num_input_tokens_seen",
    "total_flos",
    "log_history",
    "best_metric",
    "best_global_step",
    "best_model_checkpoint",
)


def train(trainer: Any, run: Run, callbacks: Sequence[Any] = ()) -> Any:
    """Does what trainer.train() does, from the run's newest checkpoint on, and ends the run; returns its output.

    `callbacks` are added behind our own: what they do in on_step_end happens after the step is saved.
    """
    callback = CheckpointCallback(run)
    for added in (callback, *callbacks):
        trainer.add_callback(added)
    newest = run.latest()
    step = 0 if newest is None else int(newest.name.rpartition("-")[2])
    begun_at = generators.positions()
    while True:
        try:
            output = _train_from(trainer, step)
        except _PassedOver:  # the newest one was damaged: the Trainer has to count from an older one
            step = callback.resumed
            generators.go_back(begun_at)  # the order of the epochs is drawn from them when training begins
        else:
            run.done()
            return output


def _train_from(trainer: Any, step: int) -> Any:
    if step == 0:
        return trainer.train()
    state, args = _callback.TrainerState(global_step=step), trainer.args
    state.logging_steps, state.eval_steps, state.save_steps = (
        args.logging_steps,
        args.eval_steps,
        args.save_steps,
    )
    state.train_batch_size = args.train_batch_size
    load_weights = trainer._load_from_checkpoint  # noqa: SLF001 (the one place where the Trainer insists on its own files)
    trainer._load_from_checkpoint = lambda *_args, **_options: None  # noqa: SLF001 (the weights come from the run)
    try:
        with tempfile.TemporaryDirectory(prefix="windfall-") as place:
            state.save_to_json(str(Path(place) / "trainer_state.json"))
            return trainer.train(resume_from_checkpoint=place)
    finally:
        trainer._load_from_checkpoint = load_weights  # noqa: SLF001 (put back as it was)


class _PassedOver(Exception):
    """The run resumed at another step than its newest checkpoint had promised."""


class CheckpointCallback(_transformers.TrainerCallback):  # type: ignore[misc]  # not there when types are checked
    """Puts the state back when everything is made, and tells the run about each step; `train` adds it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.resumed = 0
        #: What the Trainer uses now; it makes the scheduler and its own state anew whenever it begins.
        self._live: dict[str, Any] = {}
        #: Generators at the boundary, while something that is not part of training may draw from them.
        self._boundary: dict[str, Any] | None = None

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **live: Any) -> None:
        """Model, optimizer and scheduler are on their devices; no batch is fetched yet."""
        began_before, self._live = self._live, {**live, "state": state}
        if not began_before:
            self.run.track(model=live["model"], optimizer=live["optimizer"])
            self.run.track(lr_scheduler=(lambda: self._live["lr_scheduler"], lambda _: None))
            self.run.track(trainer=(self._counters, self._set_counters))
        elif any(began_before[name] is not live[name] for name in ("model", "optimizer")):
            raise Mismatch("the newest checkpoint was damaged and is set aside; start the program again")
        wanted = state.global_step
        self.resumed = self.run.resume()
        if self.resumed != wanted:
            raise _PassedOver
        if state.epoch is not None and state.epoch != int(state.epoch):
            self._keep()  # the skipping of batches draws the order of the epoch again

    def on_step_begin(self, *_: Any, **_live: Any) -> None:
        """The first batch after a resume is there."""
        self._go_back()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_live: Any) -> None:
        """The one boundary. An evaluation that follows may not draw from the training's generators."""
        if control.should_evaluate:
            self._keep()
        self.run.step(state.global_step)

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_live: Any) -> None:
        """An evaluation may follow here too."""
        if control.should_evaluate:
            self._keep()

    def on_evaluate(self, *_: Any, **_live: Any) -> None:
        """The evaluation is over."""
        self._go_back()

    def _counters(self) -> dict[str, Any]:
        return {
            name: getattr(self._live["state"], name)
            for name in _COUNTERS
            if hasattr(self._live["state"], name)
        }

    def _set_counters(self, stored: dict[str, Any]) -> None:
        for name, value in stored.items():
            setattr(self._live["state"], name, value)

    def _keep(self) -> None:
        self._boundary = generators.positions()

    def _go_back(self) -> None:
        boundary, self._boundary = self._boundary, None
        if boundary is not None:
            generators.go_back(boundary)
