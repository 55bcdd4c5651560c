"""`windfall user-data`: what a GPU instance of AWS runs at its first boot, as a launch template wants it.

The scripts lie beside this module. Decides the frame around them; must not know what they do.
"""

from __future__ import annotations

import base64
import re
from importlib.resources import files

import click

from windfall.cli.errors import BadUsage

#: Kind of AMI -> script, and whether AWS Batch merges it, which it does with MIME parts alone.
KINDS = {"al2023": ("ecs.sh", True), "al2": ("ecs.sh", True), "ubuntu": ("ubuntu.sh", False)}
_BOUNDARY = "==WINDFALL=="
_SIZE = re.compile(r"[1-9][0-9]{0,4}[mMgG]")


@click.command("user-data")
@click.option(
    "--ami",
    type=click.Choice(list(KINDS)),
    default="al2023",
    show_default=True,
    help="al2023 and al2: ECS GPU-optimised, for AWS Batch. ubuntu: a GPU machine of your own.",
)
@click.option(
    "--shm",
    metavar="SIZE",
    default="8g",
    show_default=True,
    help="Shared memory of containers that do not say.",
)
@click.option("--base64", "encoded", is_flag=True, help="Encoded, as create-launch-template takes it.")
def user_data(ami: str, shm: str, encoded: bool) -> None:
    """Print user data that prepares GPU instances of EC2."""
    if not _SIZE.fullmatch(shm):
        raise BadUsage(f"--shm must be a size such as 8g or 512m, not {shm!r}")
    text = render(ami, shm.lower())
    click.echo(base64.b64encode(text.encode()).decode() if encoded else text, nl=encoded)


def render(ami: str, shm: str) -> str:
    """The whole text for one kind of AMI."""
    name, for_batch = KINDS[ami]
    script = (files("windfall.cli") / "first_boot_scripts" / name).read_text()
    script = script.replace("@SHM@", shm)
    if not for_batch:
        return script
    return (
        f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n'
        f'--{_BOUNDARY}\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n{script}\n--{_BOUNDARY}--\n'
    )
