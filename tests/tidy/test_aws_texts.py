"""AWS's texts are where ARCHITECTURE.md says: those in records of jobs in jobs/aws_texts.py, error codes in aws_api/.

A text that is written twice is one day spelled in two ways, and clients' retry rules match only one of them. The
command line is a client and reads them off the wire. The agent's part is still to be gone through.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from enum import StrEnum

import pytest
from botocore.loaders import Loader

from tests.tidy.tree import PACKAGE, Violation, files_under, parsed, report, shown
from windfall.jobs import aws_texts

HOME = PACKAGE / "jobs" / "aws_texts.py"
#: Patterns that turn them into plain words.
READER = PACKAGE / "views" / "plain_reasons.py"
#: A client of the wire; and the one folder whose texts have not been moved yet.
ELSEWHERE = ("cli", "agent")
#: Patterns that find other programs' errors in logs.
OF_OTHERS = ("torch", "cupy", "java")
#: The services whose errors are modelled.
SERVICES = ("batch", "sagemaker", "logs", "scheduler")


def texts() -> list[str]:
    """All texts of the module; of long ones that follow a code, the code alone."""
    found: list[str] = []
    for value in vars(aws_texts).values():
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum:
            found += [member.value for member in value]
    kept = [text for text in found if not text.startswith(("windfall", "AWS's own", str(PACKAGE)))]
    return sorted({_code(text) or text for text in kept})


def _code(text: str) -> str:
    """`CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY` of a long text; empty where a text has none that is AWS's alone."""
    code, dash, _ = text.partition(" - ")
    return code if dash and ":" in code else ""


def error_codes() -> set[str]:
    """The codes of all modelled errors of the services that Windfall has."""
    codes: set[str] = set()
    for service in SERVICES:
        model = Loader().load_service_model(service, "service-2")
        for name, shape in model["shapes"].items():
            if shape.get("exception"):
                codes |= {name, shape.get("error", {}).get("code", name)}
    return codes


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """All strings but docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def strays(tree: ast.Module, where: str, known: list[str], codes: set[str]) -> Iterator[Violation]:
    """Texts of AWS's that are written in a module rather than taken from their own."""
    for node in strings(tree):
        text = str(node.value)
        for wanted in known:
            if wanted in text and not any(program in text for program in OF_OTHERS):
                yield Violation(
                    f"{where}:{node.lineno}",
                    f"has AWS's text {wanted!r}",
                    "Take it from windfall.jobs.aws_texts",
                )
        if text in codes:
            yield Violation(
                f"{where}:{node.lineno}",
                f"has the error code {text!r}",
                "Raise an error of jobs/errors.py; aws_api/ gives it its code",
            )


def test_aws_texts_are_in_their_module_and_error_codes_on_the_wire():
    known, codes = texts(), error_codes()
    assert {"Host EC2", "OutOfMemoryError", "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT"} <= set(known)
    assert {"ClientException", "ResourceInUse", "ResourceNotFoundException"} <= codes
    found = []
    for file in files_under(PACKAGE, ".py"):
        folder = file.relative_to(PACKAGE).parts[0]
        if file not in (HOME, READER) and folder not in ELSEWHERE:
            found += strays(
                parsed(file), shown(file), known, set() if folder in {"aws_api", "daemon", "usher"} else codes
            )
    assert not found, report(found)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ('REASON = "Host EC2 (instance i-1) terminated."', "Take it from windfall.jobs.aws_texts"),
        ('f"OutOfMemoryError: {why}"', "Take it from windfall.jobs.aws_texts"),
        ('raise Refused("ClientException")', "aws_api/ gives it its code"),
    ],
)
def test_a_stray_text_is_found(code, advice):
    (violation,) = strays(ast.parse(code), "here.py", texts(), error_codes())
    assert advice in str(violation)


def test_a_docstring_and_other_programs_errors_are_no_strays():
    code = '''
        """Host EC2 is what it begins with."""
        PATTERN = r"torch.OutOfMemoryError"
    '''
    assert list(strays(ast.parse(textwrap.dedent(code)), "here.py", texts(), error_codes())) == []
