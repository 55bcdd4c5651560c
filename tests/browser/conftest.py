"""One browser and one daemon for all tests here; each test has a context (storage, permissions) of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.browser.jobs import Filled, fill
from tests.browser.looking import until
from tests.conftest import require_part

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OPTIONS = ("--vcpus", "16", "--memory-mib", "65536", "--gpus", "simulated:4", "--sample-every-s", "1")
#: Chromium as root, alone and without the network services of its own.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
#: What a browser writes by itself when a request is refused; the page tells it in its own words.
REFUSED = "Failed to load resource"


def chromium() -> str | None:
    """Where the browser is: $WINDFALL_CHROMIUM, or on the path."""
    return os.environ.get("WINDFALL_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A real Chromium, driven by Playwright.

    It ends with the last test of this folder: while Playwright runs, so does an event loop in the main thread, and no
    test of another folder in the same worker can begin one.
    """
    program = chromium()
    require_part(program is not None, "no chromium is installed (or named by WINDFALL_CHROMIUM)")
    require_part(find_spec("playwright") is not None, "playwright is not installed (the extra `test` has it)")
    from playwright.sync_api import sync_playwright

    home = tempfile.mkdtemp(prefix="windfall-browser-")
    try:
        with sync_playwright() as driver:
            running = driver.chromium.launch(
                executable_path=program, args=FLAGS, env={**os.environ, "HOME": home}
            )
            yield running
            running.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="package")
def windfall(browser: Browser) -> Iterator[RunningWindfall]:
    """A daemon that all tests of the page share."""
    running = RunningWindfall(*OPTIONS)
    try:
        yield running.up()
    finally:
        running.close()


@pytest.fixture(scope="package")
def filled(windfall: RunningWindfall) -> Filled:
    """The same with jobs that run, wait, failed, were interrupted; an array; a schedule."""
    return fill(windfall)


class Seen:
    """A page, and everything that went wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error.message}"))
        page.on("console", self._told)

    def _told(self, message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(REFUSED):
            self.problems.append(f"{message.type}: {message.text}")

    def sign_in(self, windfall: RunningWindfall, role: str = "read", view: str = "/now") -> Page:
        """Open the page with a session, as `windfall dashboard` does."""
        link = windfall.windfall("dashboard", "--print", "--role", role).stdout.split()[0]
        self.page.goto(f"{link}&view=%23{view.replace('/', '%2F').replace('?', '%3F')}")
        self.page.wait_for_selector(".top")
        return self.page

    def go(self, view: str) -> Page:
        """Go to another view, and wait until its panels have their answers."""
        self.page.goto(f"{self.url}/ui/#{view}")
        self.page.wait_for_selector("main h1", state="attached")
        until(self.page, "!document.querySelector('main').innerText.includes('asking…')")
        return self.page

    def text(self) -> str:
        """What the page shows."""
        return self.page.inner_text("body")


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Seen]]:
    """Opens pages with a storage of their own; a page with an error in its console fails the test."""
    opened: list[Seen] = []

    def open_(running: RunningWindfall, **options: Any) -> Seen:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        opened.append(Seen(context.new_page(), running.url))
        return opened[-1]

    yield open_
    problems = [problem for seen in opened for problem in seen.problems]
    for seen in opened:
        seen.page.context.close()
    assert problems == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The program of axe-core, which finds what people with disabilities could not use."""
    found = find_spec("axe_playwright_python")
    require_part(found is not None, "axe-playwright-python is not installed (the extra `test` has it)")
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / "axe.min.js").read_text()
