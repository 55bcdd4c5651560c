"""Decides what makes up the state of PyTorch's modules, optimizers and generators, and how it is put back.

Names are those of the plain module, whatever wraps it; nothing is cast in silence, which load_state_dict would do.
Nothing here imports torch: these functions are called only with objects of a torch that the job has imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windfall.checkpoint.errors import Mismatch

#: torch.compile puts this in front of the names of what it wraps; a checkpoint must fit both forms.
_COMPILED = "_orig_mod."


def unwrapped(module: Any) -> Any:
    """The module inside of torch.compile and of data-parallel wrappers, so that names stay the same."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in {"DistributedDataParallel", "DataParallel"}:
            inner = module.module
        if inner is None:
            return module
        module = inner


class TorchModules:
    """Modules: parameters, buffers (those outside of state_dict too) and extra state."""

    name = "torch.nn.Module"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def owns(self, value: Any) -> bool:
        """torch.compile's and Lightning's modules are modules too."""
        return isinstance(value, self._torch.nn.Module)

    def state(self, value: Any) -> Any:
        """By names without torch.compile's prefix."""
        module = unwrapped(value)
        named = {name.replace(_COMPILED, ""): member for name, member in module.state_dict().items()}
        return {"state": named, "buffers": dict(_unsaved_buffers(module))}

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:
        """Fills parameters and buffers in place, then lets the module's own hooks see its state."""
        module = unwrapped(value)
        live = module.state_dict()
        own_names = {name.replace(_COMPILED, ""): name for name in live}
        templates = {short: live[name] for short, name in own_names.items()}
        rebuilt = rebuild({"state": templates, "buffers": dict(_unsaved_buffers(module))})
        _compare(rebuilt["state"], templates, path, self._torch)
        try:
            module.load_state_dict({own_names[short]: member for short, member in rebuilt["state"].items()})
        except RuntimeError as problem:
            raise Mismatch(f"{path or 'module'}: {problem}") from problem
        buffers = dict(_unsaved_buffers(module))
        for name, buffer in rebuilt["buffers"].items():
            if buffer is not buffers.get(name) and name in buffers:
                owner, _, own = name.rpartition(".")
                setattr(module.get_submodule(owner), own, buffer.to(buffers[name].device))


def _unsaved_buffers(module: Any) -> Iterator[tuple[str, Any]]:
    """Buffers registered with persistent=False: state_dict leaves them out, a bit-exact resume cannot."""
    for prefix, part in module.named_modules():
        # torch keeps this only as a private set; named_buffers() does not tell which are persistent.
        for name in part._non_persistent_buffers_set:  # noqa: SLF001 (no public way to ask)
            buffer = getattr(part, name, None)
            if buffer is not None:
                yield (f"{prefix}.{name}" if prefix else name).replace(_COMPILED, ""), buffer


def _compare(stored: dict[str, Any], live: dict[str, Any], path: str, torch: Any) -> None:
    """Refuses names, shapes and types that differ: load_state_dict would cast silently."""
    missing, unknown = sorted(live.keys() - stored.keys()), sorted(stored.keys() - live.keys())
    if missing or unknown:
        raise Mismatch(
            f"{path or 'module'}: the checkpoint lacks {missing[:5]} and has {unknown[:5]} besides; build the module "
            "as in the run that wrote it, or give another checkpoint directory to start anew"
        )
    for name, member in stored.items():
        live_member = live[name]
        if not isinstance(member, torch.Tensor) or torch.nn.parameter.is_lazy(live_member):
            continue
        if member.shape != live_member.shape or member.dtype != live_member.dtype:
            raise Mismatch(
                f"{path}/{name}: stored as {tuple(member.shape)} {member.dtype}, the module has"
                f" {tuple(live_member.shape)} {live_member.dtype}; build the module as in the run that wrote the"
                " checkpoint"
            )


class TorchOptimizers:
    """Optimizers, also before their first step, when they hold no state yet."""

    name = "torch.optim.Optimizer"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def owns(self, value: Any) -> bool:
        """Accelerate's wrapper is a subclass and delegates."""
        return isinstance(value, self._torch.optim.Optimizer)

    def state(self, value: Any) -> Any:
        """State by parameter number, and the parameter groups."""
        return value.state_dict()

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:
        """load_state_dict would cast state to the parameters' type (and lose bits); that is put right after it."""
        rebuilt = rebuild(value.state_dict())
        try:
            value.load_state_dict(rebuilt)
        except ValueError as problem:
            raise Mismatch(f"{path or 'optimizer'}: {problem}") from problem
        parameters = [parameter for group in value.param_groups for parameter in group["params"]]
        for number, entries in rebuilt.get("state", {}).items():
            if not isinstance(number, int) or not isinstance(entries, dict):
                continue
            states = value.state[parameters[number]]
            for key, wanted in entries.items():
                got = states.get(key)
                if not isinstance(wanted, self._torch.Tensor) or not isinstance(got, self._torch.Tensor):
                    continue
                if got.dtype != wanted.dtype or got.stride() != wanted.stride():
                    states[key] = wanted.to(got.device)


class TorchGenerators:
    """Explicit torch.Generator objects on any device."""

    name = "torch.Generator"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def owns(self, value: Any) -> bool:
        """Only generators that the program made and tracks; the default ones belong to the RNGs."""
        return isinstance(value, self._torch.Generator)

    def state(self, value: Any) -> Any:
        """The bytes of the generator, a copy on the CPU."""
        return {"state": value.get_state()}

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:  # noqa: ARG002 (the form of all object kinds)
        """Sets the generator to the stored position."""
        value.set_state(rebuild({"state": value.get_state()})["state"])


def plain_values(torch: Any) -> dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Torch's small values that stand in state dicts beside tensors, as (pack, unpack)."""
    return {
        torch.dtype: (lambda value: str(value)[6:], lambda name: getattr(torch, name)),
        torch.device: (str, torch.device),
    }


def rng_state(torch: Any) -> dict[str, Any]:
    """The default generators of the CPU and, once CUDA is in use, of every CUDA device (no device is waited for)."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(torch: Any, state: dict[str, Any]) -> None:
    """Sets as many CUDA generators as there are devices now."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        for index, rng_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(rng_state, index)
