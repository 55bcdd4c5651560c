"""`windfall interrupt`: the drill. A job's or an instance's place is taken away as a spot market would do it."""

from __future__ import annotations

from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.listing import job_id
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import counted


@click.command()
@click.argument("target", metavar="JOB|INSTANCE")
@click.option(
    "--notice",
    "notice_s",
    type=click.FloatRange(0, 86_400),
    metavar="S",
    help="Seconds until the place is gone (the daemon's own: 120 unless set); 0 takes it away at once.",
)
@data_option
@json_option
def interrupt(target: str, notice_s: float | None, data: Path | None, as_json: bool) -> None:
    """Interrupt a job with notice, as a spot market would.

    The job is told in every way that programs listen for, may save and leave until the notice is over, and
    waits for a new place afterwards. `windfall status` names the instances.
    """
    client = connect(data)
    if target.startswith("i-"):
        answer = client.own("Interrupt", instance=target, noticeS=notice_s)
        next_step = "windfall status"
    else:
        answer = client.own("Interrupt", jobId=job_id(client, target), noticeS=notice_s)
        next_step = f"windfall why {target}"
    if as_json:
        print_json(answer)
        return
    attempts = counted(answer["noticed"], "attempt")
    click.echo(f"{attempts} given {answer['noticeS']:g} s of notice; see `{next_step}`")
