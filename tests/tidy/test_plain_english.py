"""Idioms that a reader stumbles over stay out of pages, docstrings, comments and messages."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, Violation, files_under, report, shown

#: What is not written, and what to write instead.
IDIOMS: tuple[tuple[str, str], ...] = (
    (
        r"(?<!here\s)\b(?:is|are|was|were) no (?!longer\b|more than\b|less than\b|better\b|other\b)[a-z]+",
        "is not a ..., or there is no ...",
    ),
    (r"\bwho(?:m)?ever\b", "the job that, the process that, anyone who"),
    (r"\bwhom\b", "that, or another sentence; things are it"),
    (r"\b(?:tell|tells|telling|told)\sof\b", "report, say, describe"),
    (
        r"\bso\s(?:many|much|long|often)\b(?!,? (?:that|as)\b)",
        "the number or the time itself: this many, that long",
    ),
    (r"\bin\searnest\b", "for real, or nothing"),
    (r"\bfor\swant\sof\b", "for lack of"),
    (r"\bdear(?:er|est)?\b", "expensive, costs more"),
    (r"\bborne\b", "tolerated"),
    (r"(?<![.\w])mend(?:s|ed|ing)?\b", "fix, correct, repair"),
    (r"\bthe\sown\b", "its own, their own"),
    (r"\b(?:can|could|cannot|may)\sbe\shad\b", "is available, can be launched"),
    (r"\boftener\b", "more often"),
    (r"\bthat\sthere\s(?:is|are)\snot\b", "unknown ..."),
    (r"\bgone\swithout\b", "dropped"),
    (r"'s\sto\s(?:say|decide|know)\b", "X decides ..."),
    (r"\b(?:has|have|needs?|gives?)\sleave\b", "permission"),
)

#: Where idioms are looked for.
PLAIN = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs",
    *sorted(
        f"src/windfall/{folder.name}"
        for folder in (ROOT / "src/windfall").iterdir()
        if (folder / "__init__.py").is_file()
    ),
)
#: Titles of AWS's and others' own words.
GENERATED = {"docs/aws-coverage.md"}

_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in IDIOMS)


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file with their first lines: of a page all of it, of a module its comments and sentences."""
    if path.suffix == ".md":
        yield 1, path.read_text(encoding="utf-8")
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            kind = tokenize.tok_name[token.type]
            # A single word is a key or a name.
            if kind == "COMMENT" or (kind in ("STRING", "FSTRING_MIDDLE") and " " in token.string):
                yield token.start[0], token.string


def idioms_in(path: Path) -> Iterator[Violation]:
    """Each idiom of a file."""
    for first, text in prose_of(path):
        for pattern, instead in _PATTERNS:
            for found in pattern.finditer(text):
                line = first + text.count("\n", 0, found.start())
                words = " ".join(found[0].split())
                yield Violation(f"{shown(path)}:{line}", f"has {words!r}", f"Write: {instead}")


def pages_and_modules() -> Iterator[Path]:
    """All files that are to be free of idioms."""
    for name in PLAIN:
        place = ROOT / name
        found = [place] if place.is_file() else [*files_under(place, ".md"), *files_under(place, ".py")]
        yield from (path for path in found if shown(path) not in GENERATED)


def test_pages_and_texts_are_plain():
    found = [violation for path in pages_and_modules() for violation in idioms_in(path)]
    assert not found, report(found)


@pytest.mark.parametrize(
    "text",
    [
        "a file that is no image",
        "Whoever asks gets it",
        "the events that it tells of",
        "it waits for\nso long",
        "how to mend it",
        "a type that cannot be had",
        "that is preempting.py's to say",
    ],
)
def test_an_idiom_is_found(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{text}\n")
    (found,) = idioms_in(page)
    assert found.where.endswith(":3") or "\n" in text
    assert found.instead.startswith("Write: ")


def test_ordinary_sentences_are_left_alone(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""There is no file. It is no longer there. As many as so many that fit."""\n'
        'key = {"mend": one.mend}  # no more than ten\n'
        'said = f"{one.mend}"\n'
    )
    assert not list(idioms_in(module))
