"""`windfall dashboard`: opens the page in a browser, with a session that ends by itself.

The browser gets a short-lived session and never the key. Its secret travels in the fragment of a URL, which browsers
send to nobody. The URL itself is not an argument of any command, because jobs on this host can read those: the browser
is given a file of this user alone that leads on. Must not know what the page shows.
"""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from windfall.cli.client import Client, connect
from windfall.cli.down import LOOPBACK
from windfall.cli.listing import job_id
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import clock

#: How long the file that leads to the page lies there: a browser that has to start needs a while.
_FILE_LASTS_S = 60
_LEADING_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<title>Windfall</title>
<p><a href="{link}">Open Windfall's page</a></p>
<script>location.replace({script})</script>
</html>
"""


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@click.option(
    "--role",
    type=click.Choice(["read", "submit", "admin"]),
    default="read",
    show_default=True,
    help="What the page may do; never more than your key.",
)
@click.option(
    "--hours", type=float, default=8, show_default=True, help="When the page asks again, at most 12."
)
@click.option("--print", "prints", is_flag=True, help="Print the address instead of opening a browser.")
@data_option
@json_option
def dashboard(
    job: str | None, role: str, hours: float, prints: bool, data: Path | None, as_json: bool
) -> None:
    """Open Windfall's page in a browser; with JOB, at that job.

    The page gets a session of your key that may only read, unless --role asks for more, and that ends after --hours or
    when the key is revoked. On a machine without a browser the address is printed: who has it has the session.
    """
    client = connect(data)
    view = None if job is None else f"/job/{job_id(client, job)}"
    session = client.own("CreateSession", role=role, hours=hours)
    url = page_url(client.endpoint.url, session, view)
    if as_json:
        print_json({"url": url, "role": session["role"], "expiresAt": session["expiresAt"]})
        return
    _advise_on_address(client)
    until = f"until {clock(session['expiresAt'])}, role {session['role']}"
    if prints or not has_browser():
        click.echo(url)
        note(f"valid {until}; anyone who has this address has the session")
        return
    directory = client.endpoint.directory
    if open_browser(url, directory):
        click.echo(f"opened {client.endpoint.url}/ui/ in your browser ({until})")
        note("if no window appeared, `windfall dashboard --print` prints the address")
    else:
        click.echo(url)
        note(f"no browser could be started; the address is valid {until}")


def page_url(address: str, session: dict[str, Any], view: str | None) -> str:
    """The page's URL with a session in its fragment."""
    packed = base64.urlsafe_b64encode(json.dumps(session, separators=(",", ":")).encode()).decode()
    shown = "" if view is None else f"&view={quote(view, safe='')}"
    return f"{address.rstrip('/')}/ui/#session={packed.rstrip('=')}{shown}"


def has_browser() -> bool:
    """Whether a browser with windows can be expected here; a text browser cannot show the page."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def open_browser(url: str, directory: Path | None) -> bool:
    """Open a URL with a secret in a browser, through a file that soon goes away; False where no browser starts.

    The file lies in the data directory where there is one: jobs never see that.
    """
    base = directory if directory is not None and os.access(directory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="page-", dir=base))
    file = folder / "windfall.html"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(_leading_page(url))
    subprocess.Popen(
        ["/bin/sh", "-c", 'sleep "$1"; rm -f -- "$2"; rmdir -- "$3"', "sh", str(_FILE_LASTS_S), file, folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return webbrowser.open(file.as_uri())
    except webbrowser.Error:
        return False


def _leading_page(url: str) -> str:
    script = json.dumps(url).replace("<", "\\u003c")
    return _LEADING_PAGE.format(link=html.escape(url), script=script)


def _advise_on_address(client: Client) -> None:
    """Browsers keep keys and sign only for pages of this machine or with TLS."""
    parts = urlsplit(client.endpoint.url)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        port = parts.port or 80
        note(
            f"browsers sign requests only for localhost or with TLS: run `ssh -L {port}:127.0.0.1:{port}"
            f" {parts.hostname}` and open the page at http://localhost:{port}/ui/ with a key"
        )
