"""A pytest plugin that shuffles the tests of each module by the seed in FLAKY_SEED.

Tests of a module that share a daemon must not rely on which of them ran before.
"""

from __future__ import annotations

import os
import random
from itertools import groupby

import pytest

VARIABLE = "FLAKY_SEED"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle within each module; tests with the same parameters of the module's fixtures stay together."""
    seed = os.environ[VARIABLE]
    shuffled: list[pytest.Item] = []
    for _, group in groupby(items, key=_shared):
        tests = list(group)
        random.Random(f"{seed} {tests[0].nodeid}").shuffle(tests)
        shuffled += tests
    items[:] = shuffled


def _shared(item: pytest.Item) -> tuple[str, str]:
    """The module, and which of its shared daemons: pytest has put the tests of one daemon side by side."""
    callspec = getattr(item, "callspec", None)
    shared = "" if callspec is None else str(callspec.params.get("attacked", ""))
    return item.nodeid.partition("::")[0], shared
