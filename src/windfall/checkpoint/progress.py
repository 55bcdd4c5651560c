"""What a run tells about itself in WINDFALL_PROGRESS_FILE: one JSON object, replaced whole, best effort."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Progress:
    """The fields of the file; times in milliseconds since the epoch."""

    at: int = 0
    step: int = 0
    #: How many steps there are in all; None when the program does not say.
    steps: int | None = None
    first_step_at: int | None = None
    restored_step: int | None = None
    saved_step: int | None = None
    #: Seconds that the loop was held up by saving, all together.
    stall_s: float = 0.0
    #: Steps done again that an earlier attempt had done after its last checkpoint.
    steps_redone: int = 0
    loss: float | None = None
    #: Seconds that the loop waited for data and that it worked on it, all together; None when nobody measures them.
    data_wait_s: float | None = None
    step_s: float | None = None


def as_number(loss: Any) -> float | None:
    """A loss as a finite float; None for one that is still on a device, since asking would wait for the device."""
    if loss is None or getattr(getattr(loss, "device", None), "type", "cpu") != "cpu":
        return None
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        # PyTorch warns of a number that is taken from what gradients flow through.
        number = float(loss.detach() if hasattr(loss, "detach") else loss)
        return number if math.isfinite(number) else None
    return None


def write(path: Path, progress: Progress) -> None:
    """Replaces the file; a directory that is gone or full must not disturb training."""
    draft = path.with_name(f".{path.name}.tmp")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps(asdict(progress)))
        draft.replace(path)


def step_reached(path: Path) -> int:
    """The step that an earlier attempt had come to by this file, or 0."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(path.read_text())["step"])
    return 0
