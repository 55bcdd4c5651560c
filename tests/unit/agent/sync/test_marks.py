"""What a person would call a checkpoint."""

from __future__ import annotations

import pytest

from windfall.agent.sync.manifests import FileEntry
from windfall.agent.sync.marks import Title, title_of


def a_file(path: str, second: int = 1) -> FileEntry:
    return FileEntry(path, 10, second * 1_000_000_000, 0o644, ())


def test_other_programs_are_called_by_their_newest_file():
    files = [a_file("epoch-1.pt", 1), a_file("epoch-2.pt", 2)]
    assert title_of(files, lambda _file: None) == Title("epoch-2.pt", 2000)


def test_the_librarys_newest_step_gives_the_name():
    files = [a_file("run/step-000000010/manifest.json", 1), a_file("step-000000009/manifest.json", 5)]
    assert title_of(files, lambda _file: b'{"step": 10, "saved_at": 77}') == Title("step-000000010", 77, 10)


@pytest.mark.parametrize("content", [None, b"", b"torn {", b"[]", b'{"step": "ten", "saved_at": null}'])
def test_a_manifest_that_cannot_be_read_leaves_what_the_name_says(content):
    files = [a_file("step-000000010/manifest.json", 3)]
    assert title_of(files, lambda _file: content) == Title("step-000000010", 3000, 10)


def test_a_step_without_a_manifest_is_no_step():
    assert title_of([a_file("step-000000010/0.bin")], lambda _file: None).step is None


def test_an_empty_directory_has_a_name_too():
    assert title_of([], lambda _file: None) == Title("empty", 0)


def test_numbers_that_count_nothing_are_not_believed():
    files = [a_file("step-000000010/manifest.json", 3)]
    content = b'{"step": 1%s, "saved_at": 1%s}' % (b"0" * 400, b"0" * 400)
    assert title_of(files, lambda _file: content) == Title("step-000000010", 3000, 10)
