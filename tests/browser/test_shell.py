"""Signing in and out, keys, help, a daemon that is killed and comes back, an empty daemon."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.browser.conftest import OPTIONS
from tests.browser.looking import shows, until, usable


def test_the_secret_is_nowhere_once_the_page_is_open(open_page, windfall):
    seen = open_page(windfall)
    page = seen.sign_in(windfall)
    shows(seen, "Needs you")
    assert "session=" not in page.url
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("JSON.stringify([localStorage, sessionStorage])") == "[{},{}]"
    kept = page.evaluate(
        "new Promise((done) => { const o = indexedDB.open('windfall'); o.onsuccess = () => {"
        " const r = o.result.transaction('session').objectStore('session').get('session');"
        " r.onsuccess = () => done([Object.keys(r.result), r.result.key.extractable]); }; })"
    )
    assert "secretAccessKey" not in kept[0]
    assert kept[1] is False


def test_a_key_makes_a_session_and_a_wrong_one_does_not(open_page, windfall, axe):
    seen = open_page(windfall)
    page = seen.page
    page.goto(f"{windfall.url}/ui/#/jobs")
    shows(seen, "windfall dashboard", "Or sign in with a key")
    usable(seen, axe)
    environment = windfall.environment
    page.fill("input[name=id]", environment["AWS_ACCESS_KEY_ID"])
    page.fill("input[name=secret]", "wrong")
    page.click("text=sign in >> nth=-1")
    shows(seen, "signature does not match")
    page.fill("input[name=secret]", environment["AWS_SECRET_ACCESS_KEY"])
    page.click("form button")
    page.wait_for_selector(".top")
    page.wait_for_selector("h1 >> text=job")
    page.reload()
    page.wait_for_selector(".top")
    page.click(".me summary")
    page.click("text=sign out")
    shows(seen, "You signed out")


def test_the_keyboard_is_enough(open_page, windfall, filled):
    seen = open_page(windfall)
    page = seen.sign_in(windfall)
    shows(seen, "What runs")
    press = page.keyboard.press
    press("?")
    shows(seen, "next and previous row")
    press("Escape")
    press("g")
    press("j")
    shows(seen, "Newest jobs", "oom")
    press("j")
    press("j")
    press("k")
    press("Enter")
    until(page, "location.hash.startsWith('#/job/')")
    shows(seen, "Definition")
    press("w")
    until(page, "location.hash.includes('/why')")
    press("g")
    press("q")
    shows(seen, "Front of the queue")
    press("/")
    page.keyboard.type("oom")
    press("Enter")
    until(page, "(id) => location.hash.includes(id)", filled.failed)
    shows(seen, "run again…")
    press(".")
    assert page.evaluate("document.activeElement.innerText") == "run again…"
    press("Enter")
    shows(seen, "submitted again")
    press("Escape")


def test_a_job_that_does_not_exist_is_told_with_a_way_on(open_page, windfall):
    seen = open_page(windfall)
    seen.sign_in(windfall, view="/job/00000000-0000-0000-0000-000000000000")
    shows(seen, "no job", "All jobs")


def test_a_revoked_key_ends_at_the_login(open_page, windfall):
    made = windfall.windfall("keys", "create", "--name", "short", "--role", "read", "--json").stdout
    key = json.loads(made)
    key_id, secret = key["accessKeyId"], key["secretAccessKey"]
    seen = open_page(windfall)
    seen.page.goto(f"{windfall.url}/ui/")
    seen.page.fill("input[name=id]", key_id)
    seen.page.fill("input[name=secret]", secret)
    seen.page.click("form button")
    seen.page.wait_for_selector(".top")
    windfall.windfall("keys", "revoke", key_id)
    shows(seen, "Your session is over")


@pytest.fixture(scope="module")
def empty(browser):
    """A daemon that nobody has used, for tests that kill it too."""
    running = RunningWindfall(*OPTIONS)
    try:
        yield running.up()
    finally:
        running.close()


def test_empty_views_teach_what_to_do(open_page, empty, axe):
    seen = open_page(empty)
    seen.sign_in(empty)
    for view, words in {
        "/now": "Nothing runs",
        "/jobs": "No job was submitted yet",
        "/queues": "There is no queue yet",
        "/cost": "No job has run in this time",
        "/schedules": "No schedule is there yet",
        "/machines": "No instance is up",
    }.items():
        seen.go(view)
        shows(seen, words)
        usable(seen, axe)


def test_a_killed_daemon_is_told_and_found_again(open_page, empty):
    seen = open_page(empty)
    seen.sign_in(empty, view="/now")
    shows(seen, "Nothing runs")
    port = empty.url.rpartition(":")[2]
    empty.kill_daemon()
    shows(seen, "not connected, last seen", "windfall up")
    shows(seen, "Nothing runs")  # What was seen stays, with its age.
    empty.options = (*OPTIONS, "--port", port)
    empty.up()
    until(seen.page, "!document.body.innerText.includes('not connected')")
    seen.problems = [problem for problem in seen.problems if "ERR_" not in problem]
