"""Every view with data, in both themes, at phone width, and usable for all: axe-core finds nothing."""

from __future__ import annotations

import pytest

from tests.browser.looking import fits, shows, until, usable

VIEWS = {
    "/now": ["Needs you", "GPUs", "train"],
    "/jobs": ["oom", "sweep", "array of 50"],
    "/queues": ["page", "Front of the queue", "big", "64 GPUs"],
    "/cost": ["From price to use", "useful", "lost"],
    "/schedules": ["1 schedule", "nightly"],
    "/machines": ["1 machine", "the daemon's host", "instance"],
}
TABS = {
    "log": ["loss"],
    "why": ["Why it is where it is"],
    "cost": ["What it cost", "starting"],
    "advice": ["What limits it"],
    "checkpoints": ["safe at", "step"],
    "definition": ["python3"],
    "events": ["submitted", "checkpoint is safe"],
    "json": ['"jobId"'],
}
PHONE = {"viewport": {"width": 390, "height": 800}, "device_scale_factor": 2, "has_touch": True}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_shows_its_data_to_everybody(open_page, windfall, filled, axe, scheme):
    assert filled.running
    seen = open_page(windfall, color_scheme=scheme)
    seen.sign_in(windfall)
    for view, words in VIEWS.items():
        seen.go(view)
        shows(seen, *words)
        if view == "/jobs":
            # Tests before this one may have submitted some: the page counts what it lists.
            shows(seen, f"{seen.page.locator('tbody tr').count()} jobs")
        usable(seen, axe)
        fits(seen)


def test_every_tab_of_a_job(open_page, windfall, filled, axe):
    seen = open_page(windfall)
    seen.sign_in(windfall)
    for tab, words in TABS.items():
        seen.go(f"/job/{filled.running}/{tab}")
        shows(seen, "train", "Life", *words)
        usable(seen, axe)
    shows(seen, "checkpoint in safety")
    assert seen.page.locator(".life .mark").count() >= 1
    assert seen.page.locator(".life .try").count() >= 2


def test_a_phone_shows_all_of_it(open_page, windfall, filled, axe):
    seen = open_page(windfall, **PHONE)
    seen.sign_in(windfall)
    for view in [*VIEWS, f"/job/{filled.running}", f"/job/{filled.array}"]:
        seen.go(view)
        fits(seen)
    usable(seen, axe)
    seen.page.click("nav >> text=Queues")
    shows(seen, "Front of the queue")


def test_a_failed_job_begins_with_its_diagnosis_and_leads_to_the_line(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.failed}")
    shows(seen, "It failed: gpu-out-of-memory", "What to do")
    seen.page.click(".diagnosis a")
    shows(seen, "CUDA out of memory")
    assert seen.page.locator(".line mark").first.inner_text().startswith("MemoryError")


def test_an_array_is_cells_with_the_failed_ones_a_key_away(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.array}")
    shows(seen, "45 of 50", "✗ 5")
    seen.page.focus("canvas.cells")
    seen.page.keyboard.press("f")
    shows(seen, "child 3")
    seen.page.keyboard.press("f")
    shows(seen, "child 13")
    seen.page.keyboard.press("ArrowRight")
    shows(seen, "child 14")
    seen.page.click("text=failed as table")
    shows(seen, "Failed children")
    until(seen.page, "document.querySelectorAll('[aria-label=\"failed children\"] tbody tr').length === 5")


def test_every_state_is_a_link(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view="/jobs")
    shows(seen, "sweep")
    seen.page.click(".chips >> text=failed")
    until(seen.page, "!document.querySelector('table').innerText.includes('hostile')")
    assert "states=FAILED" in seen.page.url
    again = seen.page.context.new_page()
    again.goto(seen.page.url)
    again.wait_for_selector("text=Jobs that match")
    again.wait_for_selector("tbody >> text=oom")
    assert "lines" not in again.inner_text("tbody")
    again.fill("input[placeholder='train*']", "swe*")
    until(again, "document.querySelectorAll('tbody tr').length === 1")
    again.fill("input[placeholder='train*']", "nothing-like-it")
    again.wait_for_selector("text=drop name")
    again.click("text=drop name")
    again.wait_for_selector("tbody >> text=oom")
    assert filled.failed in again.inner_html("tbody")


def test_actions_say_what_they_cost_and_need_the_role(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.running}")
    seen.page.click("text=stop…")
    shows(seen, "It ends for good", "Your session may only read", "windfall dashboard --role submit")
    assert seen.page.locator("dialog .danger").count() == 0
    seen.page.keyboard.press("Escape")
    changing = open_page(windfall)
    changing.sign_in(windfall, role="submit", view=f"/job/{filled.waiting}")
    changing.page.click("text=hold…")
    changing.page.click("dialog .danger")
    shows(changing, "held by", "release…")
    changing.page.click("text=release…")
    changing.page.click("dialog .danger")
    shows(changing, "hold…")


def test_the_life_line_zooms_by_keys_and_the_zoom_is_in_the_address(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view=f"/job/{filled.running}")
    shows(seen, "Life", "CPU cores")
    seen.page.focus(".life")
    seen.page.keyboard.press("w")
    until(seen.page, "location.hash.includes('from=')")
    shows(seen, "show all")
    seen.page.keyboard.press("0")
    until(seen.page, "!location.hash.includes('from=')")
