"""Several nodes that write to one prefix: each restores everything, and deletes only what it wrote itself."""

from __future__ import annotations

import pytest

from tests.unit.agent.sync.memory_objects import MemoryObjects
from tests.unit.agent.sync.trees import Harness, contents
from windfall.agent.sync.manifests import RESERVED


class Nodes:
    """The nodes of one job, over one store."""

    def __init__(self, root, store: MemoryObjects, count: int) -> None:
        self.root, self.store, self.count = root, store, count

    def start(self, fence: int) -> list[Harness]:
        """A try: each node begins with what it restores."""
        started = []
        for number in range(self.count):
            directory = self.root / f"{fence}-{number}"
            node = Harness(directory, self.store, fence, publish=True, node=(number, self.count))
            node.sync.restore()
            started.append(node)
        return started

    def plain(self) -> dict[str, bytes]:
        return {key: self.store.get(key) for key in self.store.below("") if not key.startswith(RESERVED)}


@pytest.fixture
def store():
    return MemoryObjects()


@pytest.fixture
def nodes(tmp_path, store):
    return Nodes(tmp_path, store, 3)


def test_every_node_begins_with_the_files_of_all(nodes):
    for number, node in enumerate(nodes.start(1)):
        node.write(f"rank-{number}.bin", b"state %d" % number)
        node.write(f"step-1/shard-{number}", b"%d" % number)
        node.flush()
    everything = {f"rank-{n}.bin": b"state %d" % n for n in range(3)}
    everything |= {f"step-1/shard-{n}": b"%d" % n for n in range(3)}
    assert nodes.plain() == everything
    assert [contents(node.directory) for node in nodes.start(2)] == [everything] * 3


def test_a_node_deletes_what_it_wrote_and_nothing_else(nodes):
    first, second, _ = nodes.start(1)
    first.write("first", b"1")
    first.flush()
    second.write("second", b"2")
    second.write("deep/second", b"2")
    second.flush()
    first, second, third = nodes.start(2)
    (third.directory / "first").unlink()
    (third.directory / "second").unlink()
    third.write("third", b"3")
    third.flush()
    assert set(nodes.plain()) == {"first", "second", "deep/second", "third"}
    (second.directory / "deep/second").unlink()
    (second.directory / "deep").rmdir()
    second.flush()
    assert set(nodes.plain()) == {"first", "second", "third"}
    for node in nodes.start(3):
        assert set(contents(node.directory)) == {"first", "second", "third"}
        # A directory whose last file is gone does not come back by those who had it from others.
        assert not (node.directory / "deep").exists()


def test_of_a_file_that_several_have_the_newest_counts_and_stays(nodes):
    first, second, _ = nodes.start(1)
    first.write("latest", b"old")
    first.flush()
    second.write("latest", b"new")
    second.flush()
    assert nodes.plain() == {"latest": b"new"}
    first, second, third = nodes.start(2)
    assert [contents(node.directory) for node in (first, second, third)] == [{"latest": b"new"}] * 3
    first.write("other", b"1")
    first.flush()
    # The first node has left the name to the second.
    assert nodes.plain() == {"latest": b"new", "other": b"1"}
    third.write("latest", b"newest")
    third.flush()
    assert nodes.plain()["latest"] == b"newest"
    assert contents(nodes.start(3)[0].directory)["latest"] == b"newest"


def test_a_process_that_takes_over_knows_what_is_not_its_own(nodes):
    first, *_ = nodes.start(1)
    first.write("first", b"1")
    first.flush()
    first, second, _ = nodes.start(2)
    second.sync = second.another(2)
    second.write("second", b"2")
    second.flush()
    first.write("first", b"newer")
    first.flush()
    second.flush()
    assert nodes.plain() == {"first": b"newer", "second": b"2"}


def test_what_lay_there_before_comes_to_all_and_is_the_first_ones(nodes, store):
    store.put("given/model", b"0")
    first, second, _ = nodes.start(1)
    assert contents(second.directory) == {"given/model": b"0"}
    (second.directory / "given/model").unlink()
    second.write("second", b"2")
    second.flush()
    assert set(nodes.plain()) == {"given/model", "second"}
    first, *_ = nodes.start(2)
    assert set(contents(first.directory)) == {"given/model", "second"}
    (first.directory / "given/model").unlink()
    first.write("first", b"1")
    first.flush()
    assert set(nodes.plain()) == {"first", "second"}


def test_a_damaged_piece_of_another_node_costs_only_its_newest_picture(nodes, store):
    _, second, _ = nodes.start(1)
    for content in (b"one", b"two"):
        second.write("second", content)
        second.flush()
    newest = max(
        key for key in store.below(RESERVED) if "/writers/1/chunks/" in key and store.get(key) == b"two"
    )
    store.put(newest, b"TWO")
    first, *_ = nodes.start(2)
    assert contents(first.directory) == {"second": b"one"}
    assert "piece" in first.said("passed-over")[0]


def test_fewer_nodes_take_over_what_more_have_left(nodes, tmp_path, store):
    for number, node in enumerate(nodes.start(1)):
        node.write(f"rank-{number}", b"%d" % number)
        node.flush()
    alone = Nodes(tmp_path, store, 1)
    (job,) = alone.start(2)
    assert set(contents(job.directory)) == {"rank-0", "rank-1", "rank-2"}
    (job.directory / "rank-2").unlink()
    job.flush()
    assert set(alone.plain()) == {"rank-0", "rank-1"}
    assert not [key for key in store.below(RESERVED) if "/writers/" in key]
    assert set(contents(alone.start(3)[0].directory)) == {"rank-0", "rank-1"}
