"""A module opens with what it decides and what it must not know; a docstring says more than its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.test_names import words
from tests.tidy.tree import PACKAGE, Violation, files_under, parsed, report, shown

#: Words that add nothing when the rest of a docstring is the name again.
FILLERS = re.findall(
    r"\w+",
    """
    a an and any be by class constructor do for from function get given helper in initialise initialize
    instance is it its method module new object of on our return self set simple simply some that the these
    this to with
    """,
)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def stem(word: str) -> str:
    """A word without its commonest ending, so that `returns` is `return` and `queues` is `queue`."""
    return re.sub(r"(?:ing|ed|es|s|e)$", "", word) if len(word) > 3 else word


def repeats(docstring: str, name: str) -> bool:
    """Whether a docstring says nothing that its name did not say."""
    known = {stem(word) for word in words(name)} | {stem(word) for word in FILLERS}
    return all(stem(word) in known for word in re.findall(r"[a-z]+", docstring.lower()))


def poor_docstrings(tree: ast.Module, where: str, name: str) -> Iterator[Violation]:
    """A missing opening of a module, and docstrings that repeat a name."""
    if not (ast.get_docstring(tree) or "").strip():
        yield Violation(
            f"{where}:1", "has no docstring", "Open with what this module decides and what it must not know"
        )
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (docstring := ast.get_docstring(node)) is not None:
            own_name = name if isinstance(node, ast.Module) else node.name
            line = 1 if isinstance(node, ast.Module) else node.lineno
            if repeats(docstring, own_name):
                yield Violation(
                    f"{where}:{line}",
                    f"the docstring of {own_name} repeats its name",
                    "Say what the name cannot: the unit, the error, the invariant, the reason; or remove it",
                )


def test_docstrings_say_something():
    found: list[Violation] = []
    for file in files_under(PACKAGE, ".py"):
        name = file.parent.name if file.stem == "__init__" else file.stem
        found += poor_docstrings(parsed(file), shown(file), name)
    assert not found, report(found)


@pytest.mark.parametrize("code", ["", "x = 1", "# a comment\nimport os", '"""  """\nx = 1'])
def test_a_module_without_an_opening_is_found(code):
    assert any("Open with what" in str(v) for v in poor_docstrings(ast.parse(code), "m.py", "m"))


@pytest.mark.parametrize(
    "code",
    [
        'def get_job_queue():\n    """Gets the job queue."""',
        'async def submit_job():\n    """Submit a job"""',
        'class JobQueue:\n    """A job queue."""',
        'class A:\n    def is_idle(self):\n        """Returns is idle."""',
    ],
)
def test_an_echo_of_a_name_is_found(code):
    found = list(poor_docstrings(ast.parse('"""Decides nothing."""\n' + code), "m.py", "m"))
    assert ["repeats its name" in v.what for v in found] == [True]


def test_a_module_that_echoes_its_name_is_found():
    (violation,) = poor_docstrings(ast.parse('"""The job queues module."""'), "job_queues.py", "job_queues")
    assert "Say what the name cannot" in violation.instead


def test_a_docstring_that_adds_something_passes():
    code = '"""Orders queues."""\ndef idle_s():\n    """Seconds since the last attempt."""'
    assert list(poor_docstrings(ast.parse(code), "order.py", "order")) == []
