"""What a run is told: arguments first, then what Windfall or SageMaker put into the environment. Read once, at open."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windfall import __version__
from windfall.checkpoint import interval, progress
from windfall.checkpoint.errors import WrongUse

_DIRECTORY_VARIABLES = ("WINDFALL_CHECKPOINT_DIR", "SM_CHECKPOINT_DIR")
_SAGEMAKER_DIRECTORY = Path("/opt/ml/checkpoints")
_FRAMEWORKS = ("torch", "jax", "tensorflow", "keras", "numpy")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything that does not change while a run lasts."""

    directory: Path
    every: interval.Every
    #: Steps in all; None when the program does not say.
    steps: int | None
    #: Share of the time that saving may cost.
    budget: float
    #: Committed checkpoints that stay.
    keep: int
    rng: bool
    exit_on_notice: bool
    #: How long to wait for an earlier run's writer to finish with the directory.
    lock_wait_s: float
    #: Mean time between interruptions.
    mtbi_s: float
    #: Where patterns of track_files begin.
    root: Path
    notice_file: Path | None = None
    rebalance_file: Path | None = None
    progress_file: Path | None = None
    #: The step of an earlier attempt by its progress file.
    step_reached: int = 0
    #: Whether nobody but the program decided on the directory, so that finding something there may be a surprise.
    own_directory: bool = False
    #: What goes into every manifest.
    head: Mapping[str, Any] = field(default_factory=dict)


def checkpoint_directory(directory: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path:
    """The argument, else what Windfall says, else what SageMaker says, else ./checkpoints."""
    for named in (directory, *map(environment.get, _DIRECTORY_VARIABLES)):
        if named:
            return Path(named).absolute()
    if _SAGEMAKER_DIRECTORY.is_dir():
        return _SAGEMAKER_DIRECTORY
    return Path("checkpoints").absolute()


def read_settings(
    directory: str | os.PathLike[str] | None,
    *,
    every: int | str,
    steps: int | None,
    budget: float,
    keep: int,
    rng: bool,
    exit_on_notice: bool,
    lock_wait_s: float,
    environment: Mapping[str, str],
) -> RunSettings:
    """Checks the arguments and completes them from the environment."""
    if not 0 < budget <= 1:
        raise WrongUse(f"budget={budget!r}: give the share of time that saving may cost, such as 0.01")
    if steps is not None and steps < 1:
        raise WrongUse(f"steps={steps!r}: give the number of steps in all, or leave it out")
    if keep < 1:
        raise WrongUse(f"keep={keep!r}: at least one checkpoint has to stay")
    progress_file = _path(environment, "WINDFALL_PROGRESS_FILE")
    return RunSettings(
        directory=checkpoint_directory(directory, environment),
        every=interval.parse_every(every),
        steps=steps,
        budget=budget,
        keep=keep,
        rng=rng,
        exit_on_notice=exit_on_notice,
        lock_wait_s=lock_wait_s,
        mtbi_s=_seconds(environment, "WINDFALL_MTBI_S", interval.DEFAULT_MTBI_S),
        root=Path.cwd(),
        notice_file=_path(environment, "WINDFALL_NOTICE_FILE"),
        rebalance_file=_path(environment, "WINDFALL_REBALANCE_FILE"),
        progress_file=progress_file,
        step_reached=progress.step_reached(progress_file) if progress_file else 0,
        own_directory=not any(environment.get(name) for name in _DIRECTORY_VARIABLES),
        head={"attempt": environment.get("AWS_BATCH_JOB_ATTEMPT"), "versions": versions()},
    )


def versions() -> dict[str, str]:
    """Of this library, of Python and of the frameworks that are loaded."""
    by_name = {"windfall": __version__, "python": sys.version.split()[0]}
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            by_name[name] = str(version)
    return by_name


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name)
    return Path(value).absolute() if value else None


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    value = environment.get(name)
    if not value:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise WrongUse(f"{name}={value!r}: give a positive number of seconds, or leave it unset")
    return seconds
