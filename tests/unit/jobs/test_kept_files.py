"""Patterns of files that a job keeps."""

from __future__ import annotations

import pytest

from windfall.jobs.kept_files import BadPattern, is_kept, read_patterns


@pytest.mark.parametrize(
    ("pattern", "path", "kept"),
    [
        ("*.pt", "model.pt", True),
        ("*.pt", "deep/er/model.pt", True),
        ("*.pt", "model.pt.txt", False),
        ("results", "results/a/b", True),
        ("results", "old/results/a", True),
        ("results/a*", "results/abc/x", True),
        ("results/a*", "other/results/abc", False),
        ("a/*.pt", "a/b.pt", True),
        ("model[0-9]", "model7", True),
        ("[", "[", True),
    ],
)
def test_a_pattern_means(pattern, path, kept):
    assert is_kept(path, read_patterns(pattern)) is kept


def test_patterns_are_separated_by_spaces_or_by_lines():
    assert read_patterns("*.pt  ./results/ a a") == ("*.pt", "results", "a")
    assert read_patterns("my results/\n") == ("my results",)
    assert read_patterns("my results\n*.pt") == ("my results", "*.pt")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "./",
        "x" * 2_000,
        "*a" * 33,
        " ".join(map(str, range(33))),
    ],
)
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(BadPattern):
        read_patterns(text)


def test_a_pattern_that_is_made_to_take_long_does_not():
    assert not is_kept("a" * 4_000, read_patterns("*a" * 30 + "b"))


def test_a_deep_file_is_kept_by_its_name_its_path_and_a_directory_near_the_top():
    deep = "/".join(["top", *("d" for _ in range(20_000)), "model.pt"])
    assert is_kept(deep, ["*.pt"])
    assert is_kept(deep, ["top"])
    assert is_kept(deep, ["top/d/*"])
    assert not is_kept(deep, [f"*a/*{number}" for number in range(32)])
