"""What tests import exists where they import it from.

The quick checks before a change goes in do not load every test, so that a name that moved in src would be missed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.tree import ROOT, Violation, files_under, report, shown

PLACES = {"windfall": ROOT / "src", "tests": ROOT}


def missing_names(text: str, where: str) -> Iterator[Violation]:
    """Each name that is imported from a module of ours that does not have it."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            continue
        place = PLACES.get(node.module.partition(".")[0])
        if place is None:
            continue
        path = place / node.module.replace(".", "/")
        for alias in node.names:
            if alias.name not in names_of(path) and not _module_file(path / alias.name).is_file():
                yield Violation(
                    f"{where}:{node.lineno}",
                    f"{node.module} has no {alias.name}",
                    "Import it from the module that has it",
                )


@cache
def names_of(path: Path) -> frozenset[str]:
    """The names that a module has at its top level, under conditions too."""
    file = _module_file(path)
    return frozenset(_bound(ast.parse(file.read_text()).body)) if file.is_file() else frozenset()


def _module_file(path: Path) -> Path:
    return path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
            case ast.If() | ast.Try() | ast.With() | ast.For():
                for name in ("body", "orelse", "finalbody"):
                    yield from _bound(getattr(statement, name, []))
                for handler in getattr(statement, "handlers", []):
                    yield from _bound(handler.body)
            case _:
                yield from (
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                )


def test_a_name_that_moved_is_found():
    text = "from windfall.agent.messages import NoSuchMessage, encode\nfrom windfall.agent import messages\nimport os\n"
    (found,) = missing_names(text, "tests/x.py")
    assert "windfall.agent.messages has no NoSuchMessage" in str(found)


def test_every_import_of_a_test_leads_somewhere():
    violations = report(
        violation
        for folder in ("tests", "bench", "examples")
        for path in files_under(ROOT / folder, ".py")
        for violation in missing_names(path.read_text(), shown(path))
    )
    assert not violations, f"\n{violations}"
