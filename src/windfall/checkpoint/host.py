"""Copies what lies in the host's memory, on the training thread: when it returns, the state may change again.

Tensors of torch go through torch, which copies many small ones with little talk and large ones with many threads;
everything else goes as bytes. It knows extents and buffers, not what the leaves mean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from windfall.checkpoint.layout import Extent
from windfall.checkpoint.leaves import Leaf
from windfall.checkpoint.plans import SavePlan
from windfall.checkpoint.shared_memory import SharedBuffer, copy_into


def copy_leaves(
    plan: SavePlan,
    leaves: Sequence[Leaf],
    buffer: SharedBuffer,
    host_bytes: Callable[[Leaf], memoryview],
) -> None:
    """Fills the parts of a buffer that come from the host's memory."""
    ours = [entry for entry in plan.on_host if entry[0].form.kind == "torch" and entry[0].form.nbytes]
    if ours:
        _copy_tensors(plan, ours, leaves, buffer)
    for extent, place in plan.on_host:
        if extent.form.kind != "torch":
            copy_into(buffer.view, host_bytes(leaves[place]), extent.offset)


def _copy_tensors(
    plan: SavePlan, entries: Sequence[tuple[Extent, int]], leaves: Sequence[Leaf], buffer: SharedBuffer
) -> None:
    torch = sys.modules["torch"]
    key = ("host", plan.number)
    if key not in buffer.views:
        flat = torch.frombuffer(buffer.view, dtype=torch.uint8)
        buffer.views = {name: view for name, view in buffer.views.items() if name == "torch"}
        buffer.views[key] = [
            flat[extent.offset : extent.stop].view(leaves[place].dtype).view(leaves[place].shape)
            for extent, place in entries
        ]
    with torch.no_grad():
        torch._foreach_copy_(buffer.views[key], [leaves[place] for _, place in entries])
