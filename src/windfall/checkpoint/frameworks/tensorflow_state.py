"""Decides how TensorFlow's variables and Keras's models and optimizers become leaves and come back bit for bit.

Keras 3 runs on TensorFlow, JAX or PyTorch: its variables are handed over as arrays of the backend in use. Nothing
here imports either unless the job has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

from windfall.checkpoint.errors import Mismatch
from windfall.checkpoint.frameworks.numpy_state import dtype_name, flat_bytes, from_stored
from windfall.checkpoint.leaves import LeafForm, StoredLeaf


class TensorFlowArrays:
    """Variables, which change in place, and eager tensors, which do not."""

    kind = "tensorflow"

    def __init__(self, tensorflow: Any, numpy: Any) -> None:
        self._tf = tensorflow
        self._numpy = numpy

    def owns(self, value: Any) -> bool:
        """Symbolic tensors inside of a tf.function have no values and are not known here."""
        return isinstance(value, (self._tf.Variable, self._tf.Tensor)) and hasattr(value, "numpy")

    def take(self, value: Any, path: str) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002 (the form of all array kinds)
        """The variable itself."""
        return value, {}

    def identity(self, leaf: Any) -> Hashable:
        """One object is one variable."""
        return id(leaf)

    def immutable(self, leaf: Any) -> bool:
        """Tensors are, variables are not."""
        return not isinstance(leaf, self._tf.Variable)

    def describe(self, leaf: Any) -> LeafForm:
        """The device is "cpu" or TensorFlow's own name of it."""
        dtype = self._numpy.dtype(leaf.dtype.as_numpy_dtype)
        shape = tuple(int(size) for size in leaf.shape)
        count = 1
        for size in shape:
            count *= size
        place = leaf.device.rpartition("/device:")[2]
        device = "cpu" if not place or place.startswith("CPU") else f"tf:/{place}"
        return LeafForm("tensorflow", dtype_name(dtype), shape, count * dtype.itemsize, device)

    def host_bytes(self, leaf: Any) -> memoryview:
        """What TensorFlow reads out at this moment."""
        return flat_bytes(self._numpy, self._numpy.asarray(leaf.numpy()))

    def rebuild(self, stored: StoredLeaf, node: dict[str, Any], template: Any, path: str) -> Any:  # noqa: ARG002 (the form of all array kinds)
        """Assigns to the live variable; a tensor is made anew."""
        host = self._numpy.array(from_stored(self._numpy, stored), copy=True)
        if isinstance(template, self._tf.Variable):
            if tuple(template.shape) != host.shape or template.dtype.as_numpy_dtype != host.dtype:
                raise Mismatch(
                    f"{path}: stored as {host.shape} {host.dtype}, the variable is {tuple(template.shape)} "
                    f"{template.dtype.name}; build it as in the run that wrote the checkpoint"
                )
            template.assign(host)
            return template
        return self._tf.constant(host)

    def fold_views(self, nodes: list[tuple[dict[str, Any], Any]]) -> set[str]:  # noqa: ARG002 (the form of all array kinds)
        """No two variables share memory."""
        return set()


class TensorFlowGenerators:
    """tf.random.Generator: a variable with the position of a counter."""

    name = "tf.random.Generator"

    def __init__(self, tensorflow: Any) -> None:
        self._tf = tensorflow

    def owns(self, value: Any) -> bool:
        """The global one is tracked with the RNGs."""
        return isinstance(value, self._tf.random.Generator)

    def state(self, value: Any) -> Any:
        """The variable itself, so that it is filled in place."""
        return {"state": value.state, "algorithm": int(value.algorithm)}

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:
        """Refuses the state of another algorithm."""
        if rebuild(self.state(value))["algorithm"] != int(value.algorithm):
            raise Mismatch(f"{path}: stored by another algorithm of tf.random; make the generator as it was")


class TensorFlowModules:
    """tf.Module: its variables, in TensorFlow's own order."""

    name = "tf.Module"

    def __init__(self, tensorflow: Any) -> None:
        self._tf = tensorflow

    def owns(self, value: Any) -> bool:
        """Keras's layers are asked for first and have more."""
        return isinstance(value, self._tf.Module) and not isinstance(value, self._tf.Variable)

    def state(self, value: Any) -> Any:
        """Names are for the reader of a manifest; order decides."""
        return [list(pair) for pair in _named(value.variables)]

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:
        """Assigns in place."""
        same_length(rebuild(self.state(value)), value.variables, path)


class KerasObjects:
    """Keras models (with their optimizer and metrics), layers, optimizers, metrics and seed generators."""

    name = "keras"

    def __init__(self, keras: Any) -> None:
        self._keras = keras

    def owns(self, value: Any) -> bool:
        """A model is a layer."""
        keras = self._keras
        kinds = (keras.Layer, keras.optimizers.Optimizer, keras.metrics.Metric, keras.random.SeedGenerator)
        return isinstance(value, kinds)

    def state(self, value: Any) -> Any:
        """Arrays of the backend, by part; seeds of dropout layers are among a model's variables."""
        if isinstance(value, self._keras.random.SeedGenerator):
            return {"variables": [["state", value.state.value]]}
        return {part: [[name, v.value] for name, v in _named(vs)] for part, vs in self._parts(value).items()}

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:
        """Builds an optimizer that has not stepped yet, then assigns every variable."""
        optimizer = getattr(value, "optimizer", None)
        if optimizer is not None and not optimizer.built:
            optimizer.build(value.trainable_variables)
        stored = rebuild(self.state(value))
        if isinstance(value, self._keras.random.SeedGenerator):
            parts = {"variables": [value.state]}
        else:
            parts = self._parts(value)
        for part, variables in parts.items():
            if part == "metrics" and len(stored[part]) != len(variables):
                continue  # metrics are made at the first batch, and start at zero then
            same_length(stored[part], variables, f"{path}/{part}")
            for (name, array), variable in zip(stored[part], variables, strict=True):
                if tuple(array.shape) != tuple(variable.shape):
                    raise Mismatch(
                        f"{path}/{part}/{name}: stored as {tuple(array.shape)}, {variable.path} is "
                        f"{tuple(variable.shape)}; build the model as in the run that wrote the checkpoint"
                    )
                if array is not variable.value:
                    variable.assign(array)

    def _parts(self, value: Any) -> dict[str, list[Any]]:
        if getattr(value, "optimizer", None) is None:
            return {"variables": list(value.variables)}
        metrics = list(getattr(value, "metrics_variables", []))
        of_metrics = {id(variable) for variable in metrics}
        return {
            "variables": [variable for variable in value.variables if id(variable) not in of_metrics],
            "optimizer": list(value.optimizer.variables),
            "metrics": metrics,
        }


def _named(variables: Any) -> list[tuple[str, Any]]:
    return [(str(getattr(variable, "path", variable.name)), variable) for variable in variables]


def same_length(stored: Any, live: Any, path: str) -> None:
    """A model that is not built yet has no variables to fill; that must not pass in silence."""
    if len(stored) != len(live):
        raise Mismatch(
            f"{path}: {len(stored)} variables are stored, the object has {len(live)}; build the model "
            "(model.build(...), or run it on one batch; optimizer.build(model.trainable_variables)) before resume()"
        )


def global_generator() -> Any:
    """TensorFlow's global generator if the program has asked for one, else None.

    tf.random.get_global_generator() would make one, with a seed of its own, in a program that never wanted it.
    """
    module = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    return getattr(module, "global_generator", None)
