"""What every test may rely on: all parts in CI, reproducible properties, and no way to a real AWS account."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import daemon_logs

if TYPE_CHECKING:
    from tests.docker_engine import RunningEngine

# Without a deadline: a busy machine must not fail a property. In CI the examples are the same every time.
hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)


#: The directory of this session's temporary files, where it was made here.
_MADE = pytest.StashKey[str]()


def in_ci() -> bool:
    """Whether a missing part is a fault of the machine (CI) rather than a choice of its owner."""
    return os.environ.get("CI") == "true"


def require_part(part_present: bool, reason: str) -> None:
    """Skips the test on a machine that lacks a part, and fails it in CI, where all parts must be there."""
    if part_present:
        return
    if in_ci():
        pytest.fail(f"CI must have every part, but: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def require() -> Callable[[bool, str], None]:
    """`require(shutil.which("bwrap") is not None, "bubblewrap is not installed")` at the start of a test."""
    return require_part


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[RunningEngine]:
    """A real Docker engine for all tests of a worker (tests/docker_engine.py)."""
    # Not at the top: it needs this module in turn.
    from tests.docker_engine import require_docker, running_engine

    require_docker()
    with running_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[RunningEngine]:
    """A real Podman for all tests of a worker (tests/podman_engine.py)."""
    # Not at the top: they need this module in turn.
    from tests.docker_engine import running_engine
    from tests.podman_engine import RunningPodman, require_podman

    require_podman()
    with running_engine(RunningPodman) as engine:
        yield engine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins what takes long before the rest; the order of the others stays."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


_TEMPORARY = "windfall-tests-"
_KEPT_S = 24 * 3600


def _own_directory() -> str:
    """A directory for the temporary files of this session alone; those of failed ones are removed after a day.

    pytest's own is one for all sessions of a user, and each that starts closes it to everybody else: jobs that run as
    another user then lose the way to their files in the middle of another session's test.
    """
    for kept in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            status = kept.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _KEPT_S:
                shutil.rmtree(kept, ignore_errors=True)
    return tempfile.mkdtemp(prefix=_TEMPORARY)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Leaves temporary files only of tests that failed."""
    made = session.config.stash.get(_MADE, None)
    if made is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(made, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the hypothesis profile and takes the user's AWS account out of reach, of children too."""
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = config.stash[_MADE] = _own_directory()
    hypothesis.settings.load_profile("ci" if in_ci() else "local")
    for name in [name for name in os.environ if name.startswith(("AWS_", "BOTO_", "WINDFALL_"))]:
        del os.environ[name]
    # `windfall run` takes these along, and the job's user of a test may not be able to enter them.
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        os.environ.pop(name, None)
    os.environ["AWS_CONFIG_FILE"] = os.devnull
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    os.environ["AWS_PAGER"] = ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forgets the daemons of the test before."""
    daemon_logs.begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows with a failure how the logs of its daemons end."""
    report = yield
    if report.failed:
        report.sections += [(f"end of {name}", text) for name, text in daemon_logs.ends_of_logs()]
    return report


@pytest.fixture(autouse=True)
def _no_size_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are cut to COLUMNS where it is set, and a framework that another test has loaded may set it."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
