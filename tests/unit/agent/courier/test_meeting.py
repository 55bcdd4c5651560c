"""Nodes on two machines that share nothing but a store: their parts become one output, whatever is repeated."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from windfall.agent.courier.meeting import join, store_part
from windfall.agent.courier.merging import MergedOutput
from windfall.agent.courier.stores import Stores
from windfall.jobs.staging import Output
from windfall.jobs.storage import StorageAccess


class Machine:
    """A machine with a disk of its own."""

    def __init__(self, root: Path, store: Path) -> None:
        self.root, self.store = root, store
        (root / "attempts").mkdir(parents=True)

    def ends(self, node: int, *, of: int = 3, number: int = 1, **files: str) -> None:
        """A node ends and leaves files."""
        left = self.root / f"node-{node}"
        left.mkdir(exist_ok=True)
        for name, content in files.items():
            (left / name).write_text(content)
        output = Output(
            "/opt/ml/model",
            (self.store / "model.tar.gz").as_uri(),
            merged_as=f"training-t#{number}.17",
            merged_of=of,
            merged_in_store=True,
        )
        merged, scratch = MergedOutput(str(self.root / "attempts"), output), str(self.root / "attempts")
        fd = os.open(left, os.O_RDONLY)
        try:
            with merged.joined(fd, f"token-{node}") as whole:
                assert whole is not None
                part = merged.part(f"token-{node}")
                store_part(output, Stores(None, StorageAccess(None)), whole, part, scratch)
        finally:
            os.close(fd)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    directory.mkdir()
    return directory


@pytest.fixture
def machines(tmp_path: Path, store: Path) -> tuple[Machine, Machine]:
    return Machine(tmp_path / "one", store), Machine(tmp_path / "two", store)


def content(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = [member for member in archive if member.isreg()]
        return {member.name: archive.extractfile(member).read().decode() for member in files}


def test_the_last_of_all_nodes_makes_one_output_and_leaves_no_part(machines, store):
    one, two = machines
    one.ends(0, weights="0")
    two.ends(1, shard="1")
    assert not (store / "model.tar.gz").exists()
    one.ends(2, other="2")
    assert content(store / "model.tar.gz") == {"weights": "0", "shard": "1", "other": "2"}
    assert not [path for path in (store / "model.tar.gz.parts").rglob("*") if path.is_file()]
    assert sorted(path.name for path in (one.root / "attempts").iterdir() if "meeting" in path.name) == []


def test_of_a_file_that_two_machines_leave_one_stands_and_a_node_without_files_counts(machines, store):
    one, two = machines
    one.ends(0, weights="0")
    two.ends(1, weights="1")
    two.ends(2)
    assert content(store / "model.tar.gz") == {"weights": "1"}


def test_what_is_repeated_after_a_kill_counts_once(machines, store):
    one, two = machines
    one.ends(0, weights="0")
    one.ends(0)
    two.ends(1, shard="1")
    assert not (store / "model.tar.gz").exists()
    two.ends(2)
    assert content(store / "model.tar.gz") == {"weights": "0", "shard": "1"}


def test_parts_of_a_try_that_lost_a_machine_stay_and_are_no_part_of_the_next(machines, store):
    one, two = machines
    one.ends(0, of=2, weights="lost")
    [part] = [path for path in (store / "model.tar.gz.parts").rglob("*") if path.is_file()]
    assert content(part) == {"weights": "lost"}
    one.ends(0, of=2, number=2, weights="0")
    two.ends(1, of=2, number=2, shard="1")
    assert content(store / "model.tar.gz") == {"weights": "0", "shard": "1"}


def test_hostile_names_in_a_part_become_no_path(tmp_path):
    hostile = tmp_path / "hostile.tar.gz"
    with tarfile.open(hostile, "w:gz") as archive:
        member = tarfile.TarInfo("../../outside")
        member.size = 0
        archive.addfile(member)
    join([str(hostile)], str(tmp_path / "whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.tar.gz", "whole"]
