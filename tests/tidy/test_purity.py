"""The functional core decides; it does not look around.

jobs/, capacity/, schedules/, deadlines/, hosting/, scheduling/, accounting/, advisor/, control/, forecast/ and views/
import only themselves, the layers below them and standard modules without side effects. So the same code runs in the
daemon, in the simulation and in a unit test, and a seed replays exactly.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

import pytest

from tests.tidy.tree import PACKAGE, Violation, files_under, parsed, report, shown

#: Each folder of the core with the folders that it may import, itself included.
CORE = {
    "jobs": {"jobs"},
    "capacity": {"capacity", "jobs"},
    "schedules": {"schedules", "capacity", "jobs"},
    "deadlines": {"deadlines"},
    "hosting": {"hosting", "capacity", "jobs"},
    "scheduling": {"scheduling", "deadlines", "capacity", "jobs"},
    "accounting": {"accounting", "capacity", "jobs"},
    "advisor": {"advisor", "capacity", "jobs"},
    "control": {
        "control",
        "scheduling",
        "schedules",
        "deadlines",
        "hosting",
        "accounting",
        "advisor",
        "capacity",
        "jobs",
        "backoff",
    },
    "backoff.py": set(),
    "forecast": {
        "forecast",
        "control",
        "scheduling",
        "schedules",
        "deadlines",
        "accounting",
        "advisor",
        "capacity",
        "jobs",
    },
    "views": {
        "views",
        "forecast",
        "control",
        "scheduling",
        "schedules",
        "deadlines",
        "hosting",
        "accounting",
        "advisor",
        "capacity",
        "jobs",
    },
}

#: Standard modules whose functions return the same for the same arguments. Add one only if all of it does.
PURE_MODULES = {
    "__future__",
    "abc",
    "array",
    "bisect",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "zlib",
}

#: Modules with impure functions, which _of_call finds, that one folder cannot do without.
PURE_ENOUGH = {"schedules": {"datetime"}}

INSTEAD_OF_MODULE = {
    "asyncio": "Return an instruction; the daemon's loops wait",
    "datetime": "Take the time as an argument, in milliseconds since the epoch; aws_api/ writes dates",
    "io": "Return the value; an adapter writes it",
    "logging": "Return what happened as a value; the daemon logs it",
    "msgspec": "Use a frozen, slotted dataclass; the store and the agent's protocol do the encoding",
    "os": "Take the value as an argument; daemon/settings.py reads the environment once",
    "pathlib": "Take the content as an argument; an adapter reads files",
    "random": "Take the number as an argument; the daemon or the simulation draws it",
    "secrets": "Take the id or token as an argument; the daemon draws it",
    "socket": "Return an instruction; an engine or the agent carries it out",
    "subprocess": "Return an instruction; the agent starts processes",
    "threading": "Return a value; the daemon's loop is the only writer",
    "time": "Take `now` as an argument; daemon/ has the clock",
    "uuid": "Take the id as an argument; the daemon draws it",
}
IN_GENERAL = "Take what it gives as an argument or return an instruction, or move this module out of the core"

INSTEAD_OF_CALL = {
    "open": "Take the content as an argument; an adapter reads and writes files",
    "print": "Return a value; cli/ prints",
    "input": "Take the value as an argument; cli/ asks",
    "eval": "Write a table of functions",
    "exec": "Write a table of functions",
    "__import__": "Import at the top of the module, where this rule can see it",
    "breakpoint": "Remove it",
}


def impurities(tree: ast.Module, where: str, folder: str) -> Iterator[Violation]:
    """Everything in one module of the core that reaches outside of its arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _of_import(alias.name, f"{where}:{node.lineno}", folder)
        elif isinstance(node, ast.ImportFrom):
            yield from _of_import_from(node, f"{where}:{node.lineno}", folder)
        elif isinstance(node, ast.Call):
            yield from _of_call(node.func, f"{where}:{node.lineno}")


def _of_import_from(node: ast.ImportFrom, where: str, folder: str) -> Iterator[Violation]:
    if node.level:
        yield Violation(where, "imports relatively", "Write the full name, so that the layer can be seen")
    elif node.module == "windfall":
        for alias in node.names:
            yield from _of_import(f"windfall.{alias.name}", where, folder)
    else:
        yield from _of_import(node.module or "", where, folder)


def _of_import(module: str, where: str, folder: str) -> Iterator[Violation]:
    root, _, rest = module.partition(".")
    if root == "windfall":
        layer = rest.partition(".")[0]
        if layer not in CORE[folder]:
            below = ", ".join(sorted(CORE[folder]))
            yield Violation(
                where,
                f"imports {module}, which {folder}/ must not know",
                f"{folder}/ may import {below}. Pass the value in, or declare a port in control/ports.py",
            )
    elif root not in PURE_MODULES | PURE_ENOUGH.get(folder, set()):
        yield Violation(where, f"imports {module}", INSTEAD_OF_MODULE.get(root, IN_GENERAL))


def _of_call(function: ast.expr, where: str) -> Iterator[Violation]:
    if isinstance(function, ast.Name) and function.id in INSTEAD_OF_CALL:
        yield Violation(where, f"calls {function.id}()", INSTEAD_OF_CALL[function.id])
    if not isinstance(function, ast.Attribute):
        return
    dotted = ast.unparse(function)
    root = dotted.partition(".")[0]
    if root in {"time", "random", "os"}:
        yield Violation(where, f"calls {dotted}()", INSTEAD_OF_MODULE[root])
    elif function.attr in {"now", "utcnow", "today"} and "date" in dotted.rpartition(".")[0].lower():
        yield Violation(where, f"calls {dotted}()", INSTEAD_OF_MODULE["time"])


#: What the agent decides with, and what of the agent that may import: values and words, nothing that looks around.
AGENT_DECIDES = ("records.py", "stages.py", "events.py", "reactor.py")
AGENT_WORDS = {
    f"windfall.agent.{name}" for name in ("credentials", "errors", "events", "messages", "records", "stages")
}


@pytest.mark.parametrize("name", AGENT_DECIDES)
def test_what_the_agent_decides_with_is_pure(name):
    tree = parsed(PACKAGE / "agent" / name)
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    outside = {one for one in modules if one.partition(".")[0] not in PURE_MODULES}
    assert outside <= AGENT_WORDS
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert plain <= PURE_MODULES | {"msgspec"}
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [violation for call in calls for violation in _of_call(call, name)]
    assert not found, report(found)


@pytest.mark.parametrize("folder", CORE)
def test_the_core_is_pure(folder):
    files = [PACKAGE / folder] if folder.endswith(".py") else list(files_under(PACKAGE / folder, ".py"))
    assert files, f"src/windfall/{folder} is gone; take it out of CORE"
    found = [v for file in files for v in impurities(parsed(file), shown(file), folder)]
    assert not found, report(found)


def ambient(tree: ast.Module, where: str) -> Iterator[Violation]:
    """Variables that a function reads without being given them: for whom it acts must be seen in its arguments."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if "contextvars" in {*(alias.name for alias in node.names), getattr(node, "module", None)}:
            yield Violation(
                f"{where}:{node.lineno}",
                "imports contextvars",
                "Pass it as an argument; for whom the daemon acts is OnBehalfOf of aws_api/protocol/service.py",
            )


def test_nothing_acts_through_ambient_variables():
    found = [v for file in files_under(PACKAGE, ".py") for v in ambient(parsed(file), shown(file))]
    assert not found, report(found)


@pytest.mark.parametrize("code", ["import contextvars", "from contextvars import ContextVar"])
def test_an_ambient_variable_is_found(code):
    (violation,) = ambient(ast.parse(code), "here.py")
    assert "OnBehalfOf" in str(violation)


@pytest.mark.parametrize(
    ("folder", "code", "advice"),
    [
        ("jobs", "import os", "Take the value as an argument"),
        ("jobs", "import os.path as p", "Take the value as an argument"),
        ("jobs", "from time import monotonic", "Take `now` as an argument"),
        ("jobs", "import numpy", "move this module out of the core"),
        ("jobs", "import windfall.capacity.queues", "jobs/ may import jobs"),
        ("capacity", "from windfall import scheduling", "capacity/ may import capacity, jobs"),
        ("scheduling", "from windfall.control.ports import Engine", "Pass the value in"),
        ("control", "from windfall.store.sqlite import Store", "declare a port in control/ports.py"),
        ("views", "from windfall.daemon.loop import ControlLoop", "views/ may import accounting"),
        ("views", "import asyncio", "the daemon's loops wait"),
        ("control", "from . import ports", "Write the full name"),
        ("control", "def f():\n    import random", "as an argument"),
        ("control", "print(1)", "cli/ prints"),
        ("control", "open('x')", "an adapter reads and writes files"),
        ("control", "time.time()", "Take `now` as an argument"),
        ("control", "os.environ.get('X')", "Take the value as an argument"),
        ("control", "random.random()", "as an argument"),
        ("control", "datetime.datetime.now()", "Take `now` as an argument"),
        ("control", "date.today()", "Take `now` as an argument"),
        ("control", "from datetime import UTC", "in milliseconds since the epoch"),
        ("schedules", "datetime.now(UTC)", "Take `now` as an argument"),
    ],
)
def test_an_impurity_is_found_and_says_what_to_do(folder, code, advice):
    (violation,) = impurities(ast.parse(textwrap.dedent(code)), "here.py", folder)
    assert advice in str(violation)


def test_pure_code_passes():
    code = """
        from __future__ import annotations
        import collections.abc
        from dataclasses import dataclass
        from windfall import jobs
        from windfall.jobs.states import JobState
        def f(now: int, queue) -> int:
            return max(now, queue.open(), queue.now())
    """
    assert list(impurities(ast.parse(textwrap.dedent(code)), "here.py", "scheduling")) == []
