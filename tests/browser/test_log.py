"""The log: opens at its end, windowed in both directions, follows, searches on the server, links to a line."""

from __future__ import annotations

from tests.browser.looking import shows, until


def lines(seen):
    """The lines that are drawn."""
    return seen.page.locator(".log .line .text").all_inner_texts()


def test_a_log_opens_at_its_end_and_goes_back_to_its_start(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.lines}/log")
    shows(seen, "the end")
    assert len(lines(seen)) < 200, "only what is seen is drawn"
    # Again and again: the page may still be moving to where it was sent before.
    until(
        seen.page,
        "() => { const log = document.querySelector('.log'); log.scrollTop = 0;"
        " return !log.innerText.includes('the end') }",
    )
    seen.page.click(".tools >> text=start")
    until(seen.page, "document.querySelector('.line .text').innerText === 'line 1'")
    until(
        seen.page,
        "() => { const log = document.querySelector('.log'); log.scrollTop = 4000;"
        " return log.innerText.includes('line 230') }",
    )
    seen.page.click(".tools >> text=end")
    shows(seen, "the end")


def test_scrolling_up_brings_what_came_before(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.lines}/log")
    shows(seen, "the end")
    box = seen.page.locator(".log")
    box.hover()
    for _ in range(6):
        seen.page.mouse.wheel(0, -2500)
        seen.page.wait_for_timeout(60)
    until(
        seen.page,
        "[...document.querySelectorAll('.line .text')].some((l) => Number(l.innerText.slice(5)) < 29400)",
    )
    shown = [int(line[5:]) for line in lines(seen) if line.startswith("line ")]
    assert shown == list(range(shown[0], shown[0] + len(shown))), "no line twice, none missing"


def test_a_search_is_answered_by_the_server_and_is_a_link(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.lines}/log")
    shows(seen, "the end")
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("line 12345")
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_selector(".line.chosen >> text=line 12345")
    again = seen.page.context.new_page()
    again.goto(seen.page.url)
    again.wait_for_selector(".line.chosen >> text=line 12345")
    seen.page.fill("#log-search", "nowhere in it")
    seen.page.keyboard.press("Enter")
    shows(seen, "not in this log")


def test_a_running_job_is_followed_until_one_scrolls_up(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.running}/log")
    shows(seen, "loss")
    before = lines(seen)[-1]
    until(
        seen.page,
        "(before) => [...document.querySelectorAll('.line .text')].at(-1).innerText !== before",
        before,
    )
    until(
        seen.page,
        "() => { const b = document.querySelector('.log'); return b.scrollHeight > b.clientHeight + 400; }",
    )
    seen.page.locator(".log").hover()
    seen.page.mouse.wheel(0, -300)
    until(seen.page, "document.querySelector('.tools').innerText.match(/new line/)")
