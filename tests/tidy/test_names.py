"""A name says what a thing is for. Modules named by empty words collect what has no home."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.tree import PACKAGE, Violation, files_under, parsed, report, shown

#: Empty wherever they stand in a name.
EMPTY_WORDS = {
    "util": "Name the module after what it does: ordering.py, globs.py, arns.py",
    "common": "Put each thing into the lowest layer that needs it, under its own name",
    "helper": "Name what it helps to do: retry_rules.py, LogReader",
    "misc": "Give each thing in it a home of its own",
    "manager": "Say what it does to them: a Launcher, a Reaper, a Registry, a Ledger",
}
#: Empty as a whole name or as its last word: `JobData` says nothing, `DataDirectory` does. In the singular,
#: a service is AWS's own word at the wire.
EMPTY_ENDINGS = {
    "core": "Name the idea: the reactor, the plan, the state table",
    "data": "Say which: record, row, snapshot, sample, manifest",
    "info": "Say which: description, status, summary, inventory",
    "models": "Use the domain's word: job, attempt, compute environment",
    "services": "Name the loop or the port: idle_reaper, Store, Engine",
}
#: Names that hid their meaning, and what the thing is called now.
REPLACED = {
    "alike": "same_group, interchangeable",
    "kin": "group_key",
    "letter": "ForwardedCommand",
    "letters": "forwarded_commands",
    "looks": "search_budget",
    "parties": "eviction_sets",
    "party": "EvictionSet",
    "pulse": "watchdog",
    "rooms_ahead": "projected_capacity",
    "second_look": "flatten_cache",
    "told": "OutboxEvent, or what was said: event, message, report",
    "tick_book": "calendar_index",
    "wishes": "job_options",
}
#: Where variables are named after what they hold; a folder that is not here is still to be gone through.
NAMED = (
    *(
        "accounting",
        "advisor",
        "aws_api",
        "capacity",
        "checkpoint",
        "cli",
        "control",
        "daemon",
        "engines",
        "jobs",
    ),
    *("deadlines", "hosting", "objects", "schedules", "scheduling", "store", "usher", "views", "worker"),
)
#: Participles that say how a variable got its value and not what it is.
HOW_NOT_WHAT = {"asked", "found", "held", "kept", "known", "told"}
#: Folders whose local variables may still be called so.
UNNAMED = ("agent",)
#: Names of classes that mean something of the agent's; others say which session, request or service they are.
OF_THE_AGENT = {"Request", "Service", "Session", "Surroundings", "Wanted"}
#: Public classes of the core that share a name: words of users' programs, and errors whose names other processes read.
TWINS = {"CheckpointCallback", "NotFound", "Progress", "Snapshot"}


def words(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return [part.lower() for part in parts]


def emptiness(name: str, where: str) -> Iterator[Violation]:
    """The words in a name that say nothing."""
    parts = words(name)
    for position, word in enumerate(parts):
        singular = word.removesuffix("s")
        advice = EMPTY_WORDS.get(singular)
        if advice is None and position == len(parts) - 1:
            advice = EMPTY_ENDINGS.get(word)
        if advice is not None:
            yield Violation(where, f"the name {name} says nothing by {word!r}", advice)


def test_modules_folders_and_classes_have_telling_names():
    found: list[Violation] = []
    for file in files_under(PACKAGE, ".py"):
        own_name = file.parent.name if file.stem == "__init__" else file.stem
        found += emptiness(own_name, shown(file))
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                found += emptiness(node.name, f"{shown(file)}:{node.lineno}")
    assert not found, report(found)


def test_replaced_names_stay_away():
    found: list[Violation] = []
    for folder in NAMED:
        for file in files_under(PACKAGE / folder, ".py"):
            names = [(file.stem, shown(file))]
            names += [
                (node.name, f"{shown(file)}:{node.lineno}")
                for node in ast.walk(parsed(file))
                if isinstance(node, ast.ClassDef | ast.FunctionDef)
            ]
            for name, where in names:
                if (instead := REPLACED.get("_".join(words(name)))) is not None:
                    found.append(Violation(where, f"the name {name} hides its meaning", f"Write: {instead}"))
    assert not found, report(found)


def test_a_public_class_has_a_name_of_its_own():
    homes: dict[str, list[str]] = {}
    for folder in NAMED:
        for file in files_under(PACKAGE / folder, ".py"):
            for node in ast.walk(parsed(file)):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(f"{shown(file)}:{node.lineno}")
    twins = {name: where for name, where in homes.items() if len(where) > 1 and name not in TWINS}
    found = [
        Violation(
            " and ".join(where), f"both are called {name}", "Say in one of the names what sets it apart"
        )
        for name, where in twins.items()
    ]
    assert not found, report(found)


def test_classes_outside_of_the_agent_do_not_have_the_names_of_its_own():
    violations = [
        Violation(
            f"{shown(file)}:{node.lineno}",
            f"the agent has a {node.name}",
            "Say which: SqlSession, HttpRequest",
        )
        for file in files_under(PACKAGE, ".py")
        if file.relative_to(PACKAGE).parts[0] != "agent"
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ClassDef) and node.name in OF_THE_AGENT
    ]
    assert not violations, report(violations)


def fillers(tree: ast.Module, where: str) -> Iterator[Violation]:
    """Variables and parameters with a name that fits anything."""
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name in ("one", "told"):
            yield Violation(
                f"{where}:{node.lineno}", f"the name {name} fits anything", "Write: for instance in instances"
            )


def test_variables_are_named_after_what_they_hold():
    found = [
        violation
        for folder in NAMED
        for file in files_under(PACKAGE / folder, ".py")
        for violation in fillers(parsed(file), shown(file))
    ]
    assert not found, report(found)


def participles(tree: ast.Module, where: str) -> Iterator[Violation]:
    """Variables and parameters that are named after how they were found; fields of classes may be called so."""
    fields = {
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in ast.walk(statement)
    }
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name in HOW_NOT_WHAT:
            yield Violation(
                f"{where}:{node.lineno}",
                f"the name {name} does not say what it holds",
                "Name the thing: job, rows, match, quota_share",
            )


def test_local_variables_say_what_they_hold():
    violations = [
        violation
        for file in files_under(PACKAGE, ".py")
        if file.relative_to(PACKAGE).parts[0] not in UNNAMED
        for violation in participles(parsed(file), shown(file))
    ]
    assert not violations, report(violations)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f():\n    found = 1", 1),
        ("def f():\n    return [kept for kept in x if (known := kept)]", 2),
        ("class A:\n    held: int = 0\n    def f(self): self.kept = self.held", 0),
        ("def f(job): return job.found", 0),
        ("def f(asked, *, kept): return lambda told: 1", 3),
    ],
)
def test_a_participle_is_found(text, count):
    assert len(list(participles(ast.parse(text), "here.py"))) == count


@pytest.mark.parametrize(
    "text", ["[one for one in x]", "for one in x: pass", "def f(one): pass", "one = 1", "lambda one: 1"]
)
def test_a_filler_is_found(text):
    (found,) = fillers(ast.parse(text), "here.py")
    assert found.where == "here.py:1"


@pytest.mark.parametrize(
    "name",
    """
    util utils job_utils common common_types core helper helpers misc manager data info models services
    JobManager ManagerOfJobs JobInfo QueueData StoreHelper job_models JOBUtils
    """.split(),  # noqa: SIM905 (a list of one name to a line is no easier to read)
)
def test_an_empty_name_is_found_with_an_alternative(name):
    (violation,) = emptiness(name, "here.py")
    assert name in violation.what
    assert violation.instead


@pytest.mark.parametrize(
    "name",
    [
        "data_directory",
        "metadata",
        "Service",
        "ServiceModel",
        "JobQueue",
        "status",
        "aws_api",
        "information_flow",
    ],
)
def test_a_telling_name_passes(name):
    assert list(emptiness(name, "here.py")) == []
