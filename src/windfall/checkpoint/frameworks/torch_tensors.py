"""Decides how PyTorch's tensors become leaves and come back bit for bit, in place where they exist.

Tensors are handed over as they are, on their device; they are copied later. A tensor that lies inside of
another one (tied weights, slices of a fused weight) is stored once. Nothing here imports torch: these functions are
called only with tensors of a torch that the job has imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Iterator
from typing import Any

from windfall.checkpoint.errors import NotTrackable
from windfall.checkpoint.leaves import LeafForm, StoredLeaf


class TorchArrays:
    """Tensors and parameters."""

    kind = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._plain_types = {torch.Tensor, torch.nn.Parameter}
        #: torch makes these texts anew at every call; a snapshot asks for thousands of them.
        self._names: dict[Any, str] = {}

    def owns(self, value: Any) -> bool:
        """Parameters and buffers are tensors too."""
        return isinstance(value, self._torch.Tensor)

    def take(self, value: Any, path: str) -> tuple[Any, dict[str, Any]]:
        """The tensor without its graph; the memory format is noted where it is not the plain one."""
        torch = self._torch
        if type(value) not in self._plain_types:
            if torch.nn.parameter.is_lazy(value):
                raise NotTrackable(
                    f"{path}: has no shape yet; run the module on one batch before it is tracked"
                )
            if hasattr(value, "_local_tensor"):
                raise NotTrackable(
                    f"{path}: a sharded tensor; track its local part (tensor.to_local()) in each process"
                )
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise NotTrackable(
                f"{path}: a tensor of layout {value.layout} on {value.device} has no plain bytes; track it through a "
                "pair (get, set) that gives dense tensors"
            )
        leaf = value.detach() if value.requires_grad else value
        notes: dict[str, Any] = {}
        if not leaf.is_contiguous() and _is_dense(leaf):
            notes["stride"] = list(leaf.stride())
        if not leaf.is_cpu:
            notes["device"] = str(leaf.device)
        return leaf, notes

    def identity(self, leaf: Any) -> Hashable:
        """The same memory in the same order is the same leaf."""
        address = leaf.data_ptr()
        if not address:
            return None
        return (leaf.device, address, leaf.dtype, leaf.shape, leaf.stride(), leaf.is_conj(), leaf.is_neg())

    def immutable(self, leaf: Any) -> bool:  # noqa: ARG002 (the form of all array kinds)
        """Never: that is why a snapshot copies them."""
        return False

    def describe(self, leaf: Any) -> LeafForm:
        """Asks the tensor's metadata; no device is waited for."""
        dtype, device = leaf.dtype, leaf.device
        if dtype not in self._names:
            self._names[dtype] = str(dtype)[6:]
        if device not in self._names:
            self._names[device] = str(device)
        size = leaf.numel() * leaf.element_size()
        return LeafForm("torch", self._names[dtype], tuple(leaf.shape), size, self._names[device])

    def host_bytes(self, leaf: Any) -> memoryview:
        """A view of a contiguous tensor on the CPU; a copy of any other."""
        plain = leaf.detach().cpu().resolve_conj().resolve_neg().contiguous()
        size = plain.numel() * plain.element_size()
        if size == 0:
            return memoryview(b"")
        block = (ctypes.c_ubyte * size).from_address(plain.data_ptr())
        # Only the tensor's address was taken: the view must keep the tensor itself alive.
        block.tensor = plain
        return memoryview(block).cast("B")

    def rebuild(self, stored: StoredLeaf, node: dict[str, Any], template: Any, path: str) -> Any:  # noqa: ARG002 (the form of all array kinds)
        """Copies into the live tensor if shape and type are the same, else makes one where the old one was."""
        torch = self._torch
        dtype = getattr(torch, stored.dtype)
        if stored.buffer.nbytes:
            source = torch.frombuffer(stored.buffer, dtype=torch.uint8).view(dtype).reshape(stored.shape)
        else:
            source = torch.empty(stored.shape, dtype=dtype)
        if (view := node.get("view")) is not None:
            source = source.reshape(-1).as_strided(view["shape"], view["stride"], view["offset"])
        shape = tuple(source.shape)
        if (
            template is not None
            and not torch.nn.parameter.is_lazy(template)
            and tuple(template.shape) == shape
            and template.dtype == dtype
            and template.device.type != "meta"
        ):
            with torch.no_grad():
                template.detach().copy_(source)
            return template
        stride = node.get("stride") or torch.empty(shape, device="meta").stride()
        made = torch.empty_strided(shape, stride, dtype=dtype, device=self._device(node.get("device", "cpu")))
        made.copy_(source)
        return made

    def fold_views(self, nodes: list[tuple[dict[str, Any], Any]]) -> set[str]:
        """A leaf inside of a contiguous one of the same type becomes a view of it."""
        by_storage: dict[Hashable, dict[str, Any]] = {}
        for node, leaf in nodes:
            if leaf.numel() and leaf.element_size() * leaf.numel() < leaf.untyped_storage().nbytes():
                key = (leaf.device, leaf.untyped_storage().data_ptr(), leaf.dtype)
                by_storage.setdefault(key, {})[node["at"]] = leaf
        if not by_storage:
            return set()
        for node, leaf in nodes:  # the leaf that fills its storage is the base of the views found above
            key = (leaf.device, leaf.untyped_storage().data_ptr(), leaf.dtype)
            if key in by_storage:
                by_storage[key].setdefault(node["at"], leaf)
        inside: dict[str, tuple[str, dict[str, Any]]] = {}
        for members in by_storage.values():
            inside.update(_inside_of_others(members))
        for node, leaf in nodes:
            if node["at"] in inside:
                base, node["view"] = inside[node["at"]]
                node["at"] = base
                if leaf.is_contiguous():
                    node.pop("stride", None)
        return set(inside)

    def _device(self, name: str) -> Any:
        """The device of the stored tensor, or the CPU on a machine that has no such device."""
        device = self._torch.device(name)
        if device.type == "cuda" and (device.index or 0) >= self._torch.cuda.device_count():
            return self._torch.device("cuda" if self._torch.cuda.is_available() else "cpu")
        return device


def _is_dense(tensor: Any) -> bool:
    """Whether the elements fill a block of memory without gaps or overlaps, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _span(tensor: Any) -> tuple[int, int]:
    first = int(tensor.storage_offset())
    last = first + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return first, last


def _inside_of_others(members: dict[str, Any]) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """Which of the leaves of one storage lie within the largest contiguous one, and where."""
    bases = [(path, leaf) for path, leaf in members.items() if leaf.is_contiguous()]
    if len(members) < 2 or not bases:
        return
    base_path, base = max(bases, key=lambda item: item[1].numel())
    first, last = _span(base)
    for path, leaf in members.items():
        low, high = _span(leaf)
        if path != base_path and first <= low and high <= last and not leaf.is_conj() and not leaf.is_neg():
            place = {"offset": low - first, "shape": list(leaf.shape), "stride": list(leaf.stride())}
            yield path, (base_path, place)
