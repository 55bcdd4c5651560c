"""`windfall lint`: what is likely to go wrong with job definitions and compute environments.

Reads files without a daemon, and asks the daemon for what is registered. Must not know any rule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.aws_api.batch.lint.findings import LintFinding, Severity
from windfall.cli.client import connect
from windfall.cli.errors import BadUsage
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.plain_words import is_of_run
from windfall.cli.wording import counted

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.HINT: "cyan"}


@click.command()
@click.argument("things", nargs=-1, metavar="FILE|DEFINITION...")
@click.option("--all", "everything", is_flag=True, help="Look at everything that the daemon knows.")
@click.option("--ignore", multiple=True, metavar="CODE", help="Leave a rule out; may be repeated.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules and why they matter.")
@data_option
@json_option
def lint(
    things: tuple[str, ...],
    everything: bool,
    ignore: tuple[str, ...],
    list_rules: bool,
    data: Path | None,
    as_json: bool,
) -> int:
    """Find what is likely to go wrong with GPU job definitions.

    A FILE holds what `aws batch register-job-definition --cli-input-json` takes, a compute environment, the answer
    of a describe command, or a Dockerfile. A DEFINITION is a name, or name:revision, that the daemon knows. Exits
    with 1 if there is an error or a warning.
    """
    if list_rules:
        _print_rules(as_json=as_json)
        return 0
    if not things and not everything:
        raise BadUsage("name files or job definitions to look at, or say --all; --rules lists the rules")
    from windfall.aws_api.batch.lint.checking import RULES, is_definition, is_environment, lint_dockerfile
    from windfall.aws_api.batch.lint.checking import lint as check
    from windfall.aws_api.batch.lint.dockerfile_rules import is_dockerfile

    ignored = {code.upper() for code in ignore}
    unknown = sorted(ignored - {rule.code for rule in RULES})
    if unknown:
        raise BadUsage(f"there is no rule {', '.join(unknown)}; `windfall lint --rules` lists them")
    documents: list[dict[str, Any]] = []
    findings: list[LintFinding] = []
    dockerfiles = 0
    for path in (Path(thing) for thing in things if _is_file(thing)):
        text = _text(path)
        if is_dockerfile(text):
            findings += lint_dockerfile(str(path), text)
            dockerfiles += 1
        else:
            documents += _read(path, text)
    named = [thing for thing in things if not _is_file(thing)]
    if named or everything:
        documents += _registered(data, named, everything=everything)
    definitions = [document for document in documents if is_definition(document)]
    environments = [document for document in documents if is_environment(document)]
    findings += check(definitions, environments)
    findings = [finding for finding in findings if finding.rule.code not in ignored]
    if as_json:
        print_json({"findings": [_document(finding) for finding in findings]})
    else:
        _print(findings, len(definitions), len(environments), dockerfiles)
    return int(any(finding.rule.severity is not Severity.HINT for finding in findings))


def _is_file(thing: str) -> bool:
    return thing.endswith(".json") or "/" in thing or Path(thing).is_file()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise BadUsage(f"{path} cannot be read: {error.strerror}") from None


def _read(path: Path, text: str) -> list[dict[str, Any]]:
    from windfall.aws_api.batch.lint.reading import BadDocument, read_documents

    try:
        return read_documents(text.encode(errors="surrogateescape"))
    except BadDocument as error:
        raise BadUsage(f"{path}: {error}") from None


def _registered(data: Path | None, names: list[str], *, everything: bool) -> list[dict[str, Any]]:
    from windfall.aws_api.batch.lint.context import as_served_here
    from windfall.aws_api.batch.tags import ENGINE

    client = connect(data)
    definitions: list[dict[str, Any]] = []
    if everything:
        registered = client.pages("DescribeJobDefinitions", "jobDefinitions", status="ACTIVE")
        # Every `windfall run` overrides the definitions that it made: nobody has to change those.
        definitions += [
            definition for definition in registered if not is_of_run(definition["jobDefinitionName"])
        ]
    for name in names:
        registered = client.pages("DescribeJobDefinitions", "jobDefinitions", jobDefinitions=[name])
        if not registered:
            raise BadUsage(f"there is no job definition {name}, and no file of that name")
        # Of a name alone the revision is meant that a submission would take.
        active = [definition for definition in registered if definition["status"] == "ACTIVE"] or registered
        definitions.append(max(active, key=lambda definition: definition["revision"]))
    distinct = {definition["jobDefinitionArn"]: definition for definition in definitions}
    environments = client.pages("DescribeComputeEnvironments", "computeEnvironments")
    return [
        *distinct.values(),
        *(as_served_here(environment, environment["tags"].get(ENGINE)) for environment in environments),
    ]


def _print(findings: list[LintFinding], definitions: int, environments: int, dockerfiles: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from windfall.cli.tables import console, plain, print_grid

    out = console()
    for subject in dict.fromkeys(finding.subject for finding in findings):
        out.print(Text(plain(subject), style="bold"))
        grid = Table.grid(padding=(0, 1))
        for finding in (other for other in findings if other.subject == subject):
            severity = finding.rule.severity
            said = Text(plain(finding.seen)).append(f"\n{plain(finding.remedy)}", style="green")
            grid.add_row("", Text(severity, style=_STYLES[severity]), finding.rule.code, said)
        print_grid(grid)
    looked = f"{counted(definitions, 'definition')} and {counted(environments, 'environment')}"
    if dockerfiles:
        looked += f", {counted(dockerfiles, 'Dockerfile')}"
    counts = ", ".join(
        counted(number, severity.value)
        for severity in Severity
        if (number := sum(finding.rule.severity is severity for finding in findings))
    )
    out.print(f"{looked}: {counts or 'nothing found'}")


def _print_rules(*, as_json: bool) -> None:
    from windfall.aws_api.batch.lint.checking import RULES

    if as_json:
        print_json(
            {
                "rules": [
                    {"code": r.code, "severity": r.severity, "title": r.title, "why": r.why} for r in RULES
                ]
            }
        )
        return
    from rich.text import Text

    from windfall.cli.tables import console, print_indented

    out = console()
    for rule in RULES:
        out.print(
            Text.assemble(
                (rule.code, "bold"), " ", (f"{rule.severity:<7}", _STYLES[rule.severity]), f" {rule.title}"
            )
        )
        print_indented(rule.why, 14)


def _document(finding: LintFinding) -> dict[str, Any]:
    return {
        "code": finding.rule.code,
        "severity": finding.rule.severity,
        "title": finding.rule.title,
        "subject": finding.subject,
        "seen": finding.seen,
        "remedy": finding.remedy,
    }
