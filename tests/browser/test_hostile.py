"""Strings of jobs are text and nothing else, in every view that shows them."""

from __future__ import annotations

from tests.browser.jobs import IMAGE
from tests.browser.looking import fits, shows

LONG = "x" * 10_000


def harmless(seen):
    """Nothing of a job was run, loaded or made an element."""
    assert seen.page.evaluate("window.harmed === undefined")
    assert seen.page.locator("main img:not([alt=''])").count() == 0
    assert seen.page.locator("main script").count() == 0
    fits(seen)


def test_a_hostile_log_is_text(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.hostile}/log")
    shows(seen, IMAGE, "<script>window.harmed=2</script>", "last drawing")
    text = seen.page.inner_text(".log")
    assert "cleared red link bell" in text
    assert "\x1b" not in text
    assert "evil.invalid" not in text
    assert "drawn over" not in text
    assert seen.page.locator(".log .fg1").first.inner_text() == "red"
    assert seen.page.locator(".log a").count() == 0
    override = seen.page.locator(".line .text", has_text="before abc")
    assert override.evaluate("(e) => getComputedStyle(e).unicodeBidi") == "isolate"
    harmless(seen)


def test_hostile_records_are_text_in_every_view(open_page, windfall, filled):
    """The daemon refuses such names; a page must not rely on it, so its answers are changed on the way."""
    seen = open_page(windfall)
    names = {
        "jobName": IMAGE,
        "queue": LONG,
        "statusReason": IMAGE,
        "owner": "abc\u202edcba",
        "alarm": LONG,
        "text": IMAGE,
    }

    def changed(route):
        answer = route.fetch()
        if "json" not in answer.headers.get("content-type", ""):
            return route.fulfill(response=answer)
        return route.fulfill(response=answer, json=_poisoned(answer.json(), names))

    seen.page.route(
        "**/windfall/v1/*",
        lambda route: changed(route) if "Watch" not in route.request.url else route.abort(),
    )
    seen.sign_in(windfall)
    for view in [
        "/now",
        "/jobs",
        "/queues",
        "/cost?by=job",
        "/schedules",
        "/machines",
        f"/job/{filled.running}/events",
        f"/job/{filled.failed}/why",
        f"/job/{filled.array}",
    ]:
        seen.go(view)
        harmless(seen)
    seen.go("/jobs")
    shows(seen, IMAGE, "10,000 characters")
    seen.page.unroute_all(behavior="ignoreErrors")
    seen.problems = [problem for problem in seen.problems if "ERR_FAILED" not in problem]


def _poisoned(value, names):
    if isinstance(value, list):
        return [_poisoned(item, names) for item in value]
    if isinstance(value, dict):
        return {
            key: names[key] if key in names and isinstance(item, str | None) else _poisoned(item, names)
            for key, item in value.items()
        }
    return value
