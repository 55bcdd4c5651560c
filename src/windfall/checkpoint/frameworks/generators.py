"""Decides which random number generators are tracked without being asked for, and how they come back.

The global ones of random, numpy, torch (CPU and every CUDA device in use) and TensorFlow, as far as the job has
imported them. JAX has no global generator: its keys are tracked where the program keeps them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from windfall.checkpoint.frameworks import numpy_state, tensorflow_state, torch_state


class PythonGenerators:
    """random.Random objects that the program made itself."""

    name = "random.Random"

    def owns(self, value: Any) -> bool:
        """SystemRandom has no position to come back to."""
        return isinstance(value, random.Random) and not isinstance(value, random.SystemRandom)

    def state(self, value: Any) -> Any:
        """Version, 625 numbers and the spare Gaussian."""
        return value.getstate()

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:  # noqa: ARG002 (the form of all object kinds)
        """Puts the generator to the stored position."""
        value.setstate(rebuild(()))


def positions() -> dict[str, Any]:
    """Where the global generators of random, numpy and torch stand now, for a `go_back` in the same process."""
    state = global_state(sys.modules.get("numpy"), sys.modules.get("torch"))
    state.pop("tensorflow", None)  # the live generator itself, not a position
    return state


def go_back(state: dict[str, Any]) -> None:
    """Puts the global generators back to `positions`."""
    set_global_state(lambda _: state, sys.modules.get("numpy"), sys.modules.get("torch"))


def global_state(numpy: Any, torch: Any) -> dict[str, Any]:
    """The positions of all global generators, as plain values and arrays."""
    state: dict[str, Any] = {"random": random.getstate()}
    if numpy is not None:
        state["numpy"] = numpy_state.rng_state(numpy)
    if torch is not None:
        state["torch"] = torch_state.rng_state(torch)
    generator = tensorflow_state.global_generator()
    if generator is not None:
        state["tensorflow"] = generator
    return state


def set_global_state(rebuild: Callable[[Any], Any], numpy: Any, torch: Any) -> None:
    """Sets the generators that are there now; `rebuild` gives the stored positions, TensorFlow's in place."""
    stored = rebuild({"tensorflow": tensorflow_state.global_generator()})
    random.setstate(stored["random"])
    if numpy is not None and "numpy" in stored:
        numpy_state.set_rng_state(numpy, stored["numpy"])
    if torch is not None and "torch" in stored:
        torch_state.set_rng_state(torch, stored["torch"])
