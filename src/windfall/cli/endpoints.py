"""`windfall endpoints`: what serves, how many replicas answer, and why something is not in service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.client import connect
from windfall.cli.errors import CliError
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import ago

Answer = dict[str, Any]

_STYLES = {"InService": "green", "Failed": "red", "RollingBack": "yellow"}
_WIDE = 120


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@data_option
@json_option
def endpoints(name: str | None, data: Path | None, as_json: bool) -> None:
    """List endpoints with their replicas; show one, and why it is not in service."""
    answer = connect(data).own("Endpoints", name=name)
    if as_json:
        print_json(answer)
    elif name is not None and not answer["endpoints"]:
        raise CliError(f"there is no endpoint {name}; `windfall endpoints` lists them")
    elif name is not None:
        _print_one(answer["endpoints"][0], answer["now"])
    else:
        _print_list(answer)


def _print_list(answer: Answer) -> None:
    from rich.text import Text

    from windfall.cli.tables import Column, has_room, print_table

    if not answer["endpoints"]:
        click.echo("no endpoints; docs/endpoints.md shows how one is made")
        return
    wide = has_room(_WIDE)
    columns = [
        Column("ENDPOINT"),
        Column("STATUS"),
        Column("READY", right=True),
        *([Column("CONFIG"), Column("CHANGED", right=True)] if wide else []),
        Column("WHY", shrinks=True),
    ]
    rows = []
    for endpoint in answer["endpoints"]:
        changed = ago(endpoint["modifiedAt"], answer["now"])
        rows.append(
            [
                endpoint["name"],
                Text(endpoint["status"], style=_STYLES.get(endpoint["status"], "cyan")),
                _ready(endpoint),
                *([endpoint["config"], changed] if wide else []),
                endpoint["why"] or "",
            ]
        )
    print_table(columns, rows)


def _ready(endpoint: Answer) -> str:
    ready = sum(variant["ready"] for variant in endpoint["variants"])
    return f"{ready}/{sum(variant['wanted'] for variant in endpoint['variants'])}"


def _print_one(endpoint: Answer, now: int) -> None:
    from windfall.cli.tables import Column, heading, print_fields, print_table

    deploying = ""
    if endpoint["nextConfig"] is not None:
        deploying = f"{endpoint['nextConfig']}, has {endpoint['nextPart']:.0%} of the requests"
    print_fields(
        [
            ("endpoint", endpoint["name"]),
            ("status", endpoint["status"]),
            ("configuration", endpoint["config"]),
            ("deploying", deploying),
            ("created", ago(endpoint["createdAt"], now)),
            ("changed", ago(endpoint["modifiedAt"], now)),
            ("why", endpoint["why"] or ""),
        ]
    )
    heading("Variants")
    columns = [
        Column("VARIANT"),
        Column("MODEL"),
        Column("TYPE"),
        Column("WEIGHT", right=True),
        Column("READY", right=True),
        Column("NOTE", shrinks=True),
    ]
    print_table(
        columns,
        [
            [
                variant["name"],
                variant["model"],
                variant["instanceType"] or "",
                f"{variant['weight']:g}",
                f"{variant['ready']}/{variant['wanted']}",
                variant["note"] or "",
            ]
            for variant in endpoint["variants"]
        ],
    )
    heading("Replicas")
    if not endpoint["replicas"]:
        click.echo("  none")
        return
    rows = [
        [replica["jobId"], replica["variant"], replica["state"].lower(), ago(replica["createdAt"], now)]
        for replica in endpoint["replicas"]
    ]
    print_table([Column("JOB"), Column("VARIANT"), Column("STATE"), Column("CREATED", right=True)], rows)
