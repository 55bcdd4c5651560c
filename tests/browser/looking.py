"""Ways to look at a page: wait for words, ask axe-core, measure.

Playwright's own wait_for_function evaluates strings in the page, which the page's Content-Security-Policy refuses; what
is asked from outside, again and again, it does not concern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Seen


def until(page: Page, expression: str, argument: Any = None) -> None:
    """Wait until an expression over the page is true."""
    try:
        wait_until(lambda: page.evaluate(expression, argument), expression, deadline_s=120, interval_s=0.05)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{page.url}\n{page.inner_text('body')[:3000]}") from None


def shows(seen: Seen, *words: str) -> None:
    """Wait until all these words are on the page."""
    for word in words:
        until(seen.page, "(word) => document.body.innerText.includes(word)", word)


def usable(seen: Seen, axe: str) -> None:
    """What axe-core finds in the page as it stands: nothing."""
    seen.page.evaluate(axe)
    found = seen.page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)")
    assert [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found] == [], (
        seen.page.url
    )


def fits(seen: Seen) -> None:
    """Nothing makes the page itself wider than the screen."""
    wide, screen = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= screen, seen.page.url
