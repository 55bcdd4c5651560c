"""The page in a real browser: a million jobs stored, an array of 10,000, and a log of a gigabyte.

Times are taken from outside: from the navigation, click or key until what was asked for is drawn. What the browser's
driver adds is in them. Chromium and Playwright are needed; without them there is no figure.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.page import ask, store_with_jobs
from bench.results import Bench, Result, middle
from bench.running_daemon import ENVIRONMENT, QUEUE, RunningDaemon
from bench.wire import Connection

FIRST_VIEW_MS, CHANGE_MS = 1000.0, 100.0
ARRAY, LOG_BYTES = 10_000, 1 << 30
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]

#: The longest time between two frames while the list is scrolled to its end, three times.
_SCROLL = """async () => {
  let longest = 0, last = performance.now()
  for (let n = 0; n < 30; n++) {
    window.scrollBy(0, 400)
    await new Promise(requestAnimationFrame)
    const at = performance.now()
    longest = Math.max(longest, at - last)
    last = at
  }
  return longest
}"""

#: From a click on "failed" until the first row is, or is no longer, one that failed.
_FILTER = """async () => {
  const failed = () => document.querySelector('tbody tr .state')?.innerText.startsWith('✗')
  const chip = [...document.querySelectorAll('.chips button')].find(it => it.innerText.startsWith('✗'))
  const before = failed(), begin = performance.now()
  chip.click()
  while (failed() === before && performance.now() - begin < 10000) await new Promise(requestAnimationFrame)
  return performance.now() - begin
}"""


def measure(bench: Bench) -> list[Result]:
    """All of it, over one daemon."""
    program = os.environ.get("WINDFALL_CHROMIUM") or shutil.which("chromium")
    if program is None:
        bench.say("no chromium is installed: the page is not measured in a browser")
        return []
    from playwright.sync_api import sync_playwright

    data, jobs = store_with_jobs(bench)
    with RunningDaemon(bench.workspace, 2, data) as daemon:
        array, small, large = _prepared(bench, daemon)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=program, args=FLAGS)
            try:
                looks = _Looks(bench, browser.new_page(viewport={"width": 1280, "height": 900}), daemon)
                return looks.all(jobs, array, small, large)
            finally:
                browser.close()


def _prepared(bench: Bench, daemon: RunningDaemon) -> tuple[str, str, str]:
    """An array that waits, a job with a small log, and one with a large one."""
    connection = Connection(daemon.account)
    connection.call("UpdateComputeEnvironment", computeEnvironment=ENVIRONMENT, state="ENABLED")
    daemon.define(connection, "echo", ["/bin/sh", "-c", "seq 1 1000"])
    submitted = [
        connection.call("SubmitJob", jobName=name, jobQueue=QUEUE, jobDefinition="echo")["jobId"]
        for name in ("small", "large")
    ]
    while True:
        described = connection.call("DescribeJobs", jobs=submitted)["jobs"]
        if all(job["status"] == "SUCCEEDED" for job in described):
            break
        time.sleep(0.2)
    stream = next(job["container"]["logStreamName"] for job in described if job["jobId"] == submitted[1])
    log = daemon.data / "logs" / f"{stream.rpartition('/')[2]}.log"
    _grow(log, bench.count(LOG_BYTES, LOG_BYTES >> 4))
    connection.call("UpdateComputeEnvironment", computeEnvironment=ENVIRONMENT, state="DISABLED")
    array = connection.call(
        "SubmitJob", jobName="array", jobQueue=QUEUE, jobDefinition="echo", arrayProperties={"size": ARRAY}
    )["jobId"]
    connection.close()
    return array, submitted[0], submitted[1]


def _grow(log: Path, size: int) -> None:
    block = b"".join(b"line %012d of a long log that a job wrote\n" % number for number in range(20_000))
    with open(log, "ab") as file:
        file.writelines(block for _ in range(size // len(block)))


class _Looks:
    """The looks at the page, one after another."""

    def __init__(self, bench: Bench, page: Any, daemon: RunningDaemon) -> None:
        self._bench, self._page, self._url = bench, page, daemon.account.url
        page.set_default_timeout(60_000)
        session = ask(daemon.account, "CreateSession", {"role": "read"})
        packed = base64.urlsafe_b64encode(json.dumps(session).encode()).decode().rstrip("=")
        page.goto(f"{self._url}/ui/#session={packed}")
        page.wait_for_selector(".top")

    def all(self, jobs: int, array: str, small: str, large: str) -> list[Result]:
        """Every figure."""
        stored = f"{jobs:,} jobs stored"
        first = [
            self._result(
                f"page in Chromium: first view, {words}, {stored}",
                FIRST_VIEW_MS,
                lambda view=view, sign=sign: self._open(view, sign),
            )
            for view, words, sign in (
                ("/now", "Now", "text=What runs"),
                ("/jobs", "Jobs", "tbody tr >> nth=50"),
                (f"/job/{array}", f"an array of {ARRAY:,}", "canvas.cells"),
                (f"/job/{small}/log", "a log of 1,000 lines", ".line >> nth=5"),
                (
                    f"/job/{large}/log",
                    f"a log of {self._bench.count(LOG_BYTES, LOG_BYTES >> 4) >> 20:,} MiB",
                    ".line >> nth=5",
                ),
            )
        ]
        self._open("/jobs", "tbody tr >> nth=50")
        filtered = self._result(f"page in Chromium: filter by state, {stored}", CHANGE_MS, self._filter)
        self._open("/jobs", "tbody tr >> nth=50")
        scrolled = self._result(
            f"page in Chromium: longest frame while the list is scrolled, {stored}",
            CHANGE_MS,
            lambda: float(self._page.evaluate(_SCROLL)),
        )
        return [*first, filtered, scrolled]

    def _result(self, name: str, target_ms: float, look: Callable[[], float]) -> Result:
        times = [look() for _ in range(self._bench.count(7, 3))]
        value = middle(times)
        self._bench.say(f"{name}: {value:,.0f} ms")
        return Result(
            name,
            value,
            "ms",
            target=f"{target_ms:,.0f} ms",
            reached=value <= target_ms,
            details={"runs": times},
        )

    def _open(self, view: str, sign: str) -> float:
        """A new document each time: everything is loaded, signed in from storage, asked and drawn."""
        self._page.goto("about:blank")
        begin = time.perf_counter()
        self._page.goto(f"{self._url}/ui/#{view}", wait_until="commit")
        self._page.wait_for_selector(sign)
        return (time.perf_counter() - begin) * 1000

    def _filter(self) -> float:
        """From the click until all rows are of the other state; the browser itself looks at each change."""
        return float(self._page.evaluate(_FILTER))
