"""A module over 400 lines has a second idea in it; a function over 70 lines has several.

What is too long already stands in a list with its present length, and the number may only go down.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.tidy.tree import ROOT, Violation, files_under, report, shown

MODULE_LINES = 400
FUNCTION_LINES = 70

#: What is too long, as "path" or "path::function", with its length today. Take entries out; add none.
RATCHET: dict[str, int] = {}

#: Test modules are left out: a conformance suite is long by nature and read one test at a time.
FOLDERS = ("src", "bench", "examples")


def lengths(text: str, where: str) -> Iterator[tuple[str, int, int]]:
    """Each module and function with its lines and its limit; docstrings count, decorators do not."""
    yield where, len(text.splitlines()), MODULE_LINES
    yield from _function_lengths(ast.parse(text), f"{where}::")


def _function_lengths(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            assert child.end_lineno is not None
            yield f"{prefix}{child.name}", child.end_lineno - child.lineno + 1, FUNCTION_LINES
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _function_lengths(child, f"{prefix}{child.name}." if named else prefix)


def oversizes(sizes: Mapping[str, tuple[int, int]], ratchet: Mapping[str, int]) -> Iterator[Violation]:
    """What is longer than it may be, and entries of the ratchet that have become too generous."""
    for name, (lines, limit) in sizes.items():
        if name in ratchet:
            continue
        if lines > limit:
            kind = "Find the second idea in it and give it its own module"
            if "::" in name:
                kind = "Name its steps and make them functions"
            yield Violation(name, f"{lines} lines, the limit is {limit}", kind)
    for name, allowed in ratchet.items():
        lines, limit = sizes.get(name, (0, 0))
        if lines > allowed:
            yield Violation(name, f"grew from {allowed} to {lines} lines", "It may only shrink: split it")
        elif lines <= limit:
            yield Violation(
                name, "is within the limit now", "Take it out of RATCHET in tests/tidy/test_sizes.py"
            )
        elif lines < allowed:
            yield Violation(name, f"shrank to {lines} lines", f"Lower its number in RATCHET from {allowed}")


def test_modules_and_functions_stay_readable():
    sizes = {
        name: (lines, limit)
        for folder in FOLDERS
        for file in files_under(ROOT / folder, ".py")
        for name, lines, limit in lengths(file.read_text(encoding="utf-8"), shown(file))
    }
    assert "src/windfall/__init__.py" in sizes
    found = list(oversizes(sizes, RATCHET))
    assert not found, report(found)


def a_function(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


def broken_by(text: str, ratchet: Mapping[str, int] | None = None) -> str:
    sizes = {name: (lines, limit) for name, lines, limit in lengths(text, "m.py")}
    return report(oversizes(sizes, ratchet or {}))


def test_a_long_module_is_found():
    assert broken_by("x = 1\n" * 400) == ""
    assert "m.py: 401 lines, the limit is 400. Find the second idea" in broken_by("x = 1\n" * 401)


def test_a_long_function_is_found_wherever_it_stands():
    assert broken_by(a_function(70)) == ""
    assert "m.py::long: 71 lines, the limit is 70. Name its steps" in broken_by(a_function(71))
    nested = "class C:\n    if True:\n        async def long(self):\n" + "            x = 1\n" * 70
    assert "m.py::C.long: 71 lines" in broken_by(nested)


def test_the_ratchet_only_turns_one_way():
    assert broken_by(a_function(80), {"m.py::long": 80}) == ""
    assert "grew from 80 to 81" in broken_by(a_function(81), {"m.py::long": 80})
    assert "Lower its number in RATCHET from 80" in broken_by(a_function(79), {"m.py::long": 80})
    assert "Take it out" in broken_by(a_function(70), {"m.py::long": 80})
    assert "Take it out" in broken_by("", {"gone.py": 500})
