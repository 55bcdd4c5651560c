"""What a daemon and an agent load at their start: nothing that most of them never need."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import windfall
from windfall.daemon.leading import spared_by_the_collector

SOURCES = Path(windfall.__file__).parent.parent


def loaded_with(module: str) -> set[str]:
    """The modules of a new process that has imported one."""
    command = f"import json, sys, {module}; print(json.dumps(list(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(found.stdout))


@pytest.mark.parametrize(
    ("module", "late"),
    [
        # botocore is read while the agent starts; the advisor and endings when somebody asks.
        ("windfall.daemon.serving", "botocore"),
        ("windfall.daemon.serving", "windfall.agent.serve"),
        ("windfall.daemon.serving", "windfall.advisor.finding"),
        ("windfall.daemon.serving", "windfall.views.endings"),
        ("windfall.agent.serve", "windfall.advisor.failures"),
        ("windfall.agent.serve", "pynvml"),
        ("windfall.agent.serve", "shutil"),
    ],
)
def test_is_not_loaded_at_the_start(module: str, late: str) -> None:
    loaded = loaded_with(module)
    assert module in loaded
    assert late not in loaded, f"{module} imports {late}, by whichever way; import it where it is used"


def test_what_is_loaded_is_never_collected_again() -> None:
    before, thresholds = gc.get_freeze_count(), gc.get_threshold()
    try:
        with spared_by_the_collector():
            assert not gc.isenabled()
            kept = [[] for _ in range(1_000)]  # type: ignore[var-annotated]  # what is in them does not matter
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(kept)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
