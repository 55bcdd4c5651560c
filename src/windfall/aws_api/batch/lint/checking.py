"""All rules over a set of documents, as the aws command line takes them or as the API describes them.

Decides what a document is by the members that it has. Must not know where documents come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.lint import definition_rules, dockerfile_rules, environment_rules
from windfall.aws_api.batch.lint.context import surroundings_of
from windfall.aws_api.batch.lint.findings import LintFinding, Rule

Document = Mapping[str, Any]

#: Every rule, in the order of their codes.
RULES: tuple[Rule, ...] = (
    *(rule for rules in (definition_rules.RULES, environment_rules.RULES) for rule, _ in rules),
    *dockerfile_rules.RULES,
)


def is_definition(document: Document) -> bool:
    """Whether it is a job definition."""
    return "jobDefinitionName" in document


def is_environment(document: Document) -> bool:
    """Whether it is a compute environment."""
    return "computeEnvironmentName" in document


def lint_dockerfile(name: str, text: str) -> list[LintFinding]:
    """What the rules about Dockerfiles find in one."""
    return [
        LintFinding(rule, f"file {name}", seen, remedy)
        for rule, seen, remedy in dockerfile_rules.check_dockerfile(text)
    ]


def lint(definitions: Sequence[Document], environments: Sequence[Document]) -> list[LintFinding]:
    """What all rules find; the environments are also what the definitions are looked at beside."""
    findings = []
    for environment in environments:
        subject = f"environment {environment['computeEnvironmentName']}"
        findings += [
            LintFinding(rule, subject, seen, remedy)
            for rule, seen, remedy in environment_rules.check_environment(environment)
        ]
    around = surroundings_of(environments)
    for definition in definitions:
        name, revision = definition["jobDefinitionName"], definition.get("revision")
        subject = f"definition {name}" + (f":{revision}" if revision else "")
        findings += [
            LintFinding(rule, subject, seen, remedy)
            for rule, seen, remedy in definition_rules.check_definition(definition, around)
        ]
    return findings
