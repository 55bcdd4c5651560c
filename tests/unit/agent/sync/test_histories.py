"""Random histories of a job, its interruptions and its courier's deaths: what comes back always really was there.

After every restore the directory must equal a state that it had when it was looked at, and never one older than the
last commit that was acknowledged. Plain names, where published, must equal the directory once a flush has succeeded.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.agent.sync.memory_objects import MemoryObjects
from tests.unit.agent.sync.trees import Harness, contents
from windfall.objects.errors import Unreachable

PATHS = ("a", "b", "d/a", "d/e/f")
paths = st.sampled_from(PATHS)
bodies = st.binary(max_size=40)

#: What may happen, with its arguments.
acts = st.one_of(
    st.tuples(st.just("write"), paths, bodies),
    st.tuples(st.just("write"), paths, bodies),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("delete"), paths),
    st.tuples(st.just("pass")),
    st.tuples(st.just("pass")),
    st.tuples(st.just("pass")),
    st.tuples(st.just("kill"), st.integers(0, 12)),
    st.tuples(st.just("away"), st.integers(0, 12)),
    st.tuples(st.just("rot"), st.integers(0, 50)),
    st.tuples(st.just("interrupt"), st.booleans()),
)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


class History:
    """Carries out acts, and remembers which states may come back."""

    def __init__(self, root: Path, publish: bool) -> None:
        self.store = MemoryObjects()
        self.directory = root / "checkpoints"
        self.directory.mkdir()
        self.fence = 1
        self.kill_after: int | None = None
        self.job = Harness(self.directory, self.store, publish=publish, keep=2, stage=self._stage, rest_s=3.0)
        #: The last acknowledged state, and every state looked at since.
        self.possible: list[dict[str, bytes]] = [{}]
        #: Every state that may ever have been committed.
        self.ever: list[dict[str, bytes]] = [{}]
        #: Pieces that rotted, as they were: an older state may be the newest that verifies.
        self.rotten: dict[str, bytes] = {}

    def _stage(self, _name: str) -> None:
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                self.kill_after = None
                raise Killed

    def _seen(self) -> None:
        self._may_be(contents(self.directory))

    def _may_be(self, state: dict[str, bytes]) -> None:
        self.possible.append(state)
        self.ever.append(state)

    def write(self, path: str, body: bytes) -> None:
        self.job.write(path, body)

    def rename(self, source: str, target: str) -> None:
        if (self.directory / source).exists():
            (self.directory / target).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / source).rename(self.directory / target)

    def delete(self, path: str) -> None:
        (self.directory / path).unlink(missing_ok=True)

    def rot(self, number: int) -> None:
        keys = self.store.below(".windfall/chunks")
        if keys:
            key = keys[number % len(keys)]
            self.rotten.setdefault(key, self.store.objects[key])
            self.store.objects[key] = b"?" * len(self.store.objects[key])

    def _pass(self, work) -> None:
        self._seen()
        commits = len(self.job.said("committed"))
        try:
            work()
        except Killed:
            self.job.sync = self.job.another(self.fence)
        self.kill_after = None
        if len(self.job.said("committed")) > commits and not self._holds_old_versions():
            del self.possible[:-1]

    def _holds_old_versions(self) -> bool:
        """Whether the last commit took files that never rest as they were before."""
        newest = max(self.store.below(".windfall/manifests"))
        restored = self.job.restored(fence=10**9)
        state = contents(self.directory)
        if restored != state:
            # Every file of it was committed before as it is, or is as it is now.
            for path, body in restored.items():
                known = state.get(path) == body or any(old.get(path) == body for old in self.possible)
                assert known or self.rotten, (path, newest)
            self._may_be(restored)
            return True
        return False

    def run(self, act: tuple) -> None:
        name, *arguments = act
        if name == "pass":
            self._pass(self.job.pass_once)
        elif name == "kill":
            self.kill_after = arguments[0]
            self._pass(self.job.pass_once)
        elif name == "away":
            left = [arguments[0]]

            def fail(_call: str, _key: str) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Unreachable("away")

            self.store.fail = fail
            self._pass(lambda: self.job.pass_once(after_s=20))
            self.store.fail = lambda _call, _key: None
        elif name == "interrupt":
            self.interrupt(flushes=arguments[0])
        else:
            getattr(self, name)(*arguments)

    def interrupt(self, *, flushes: bool) -> None:
        if flushes:
            self._seen()
            synced = self.job.flush()
            assert (synced.pending_files, synced.alarm) == (0, None)
            if self.job.options["publish"] and not self.rotten:
                assert self.store.plain() == contents(self.directory)
            self.possible = [contents(self.directory)]
        self.fence += 1
        shutil.rmtree(self.directory)
        self.job.sync = self.job.another(self.fence)
        self.job.sync.restore()
        came_back = contents(self.directory)
        assert came_back in (self.ever if self.rotten else self.possible)
        if self.rotten:
            # Heal the store and commit afresh, so that the history to come is judged strictly again.
            for key in self.rotten.keys() & self.store.objects.keys():
                self.store.objects[key] = self.rotten[key]
            self.rotten = {}
            self.job.write("d/e/f", b"after the damage")
            self.job.flush()
            came_back = contents(self.directory)
            self.ever.append(came_back)
        self.possible = [came_back]


@settings(max_examples=50)
@given(st.lists(acts, min_size=15, max_size=50), st.booleans())
def test_what_comes_back_really_was_there(history, publish):
    with tempfile.TemporaryDirectory() as root:
        run = History(Path(root), publish)
        for act in history:
            run.run(act)
        run.interrupt(flushes=True)
        run.interrupt(flushes=False)
