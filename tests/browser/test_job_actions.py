"""What the page does for a job: its files as downloads, another priority, and what-if; and views whose answers fail."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.daemon import a_definition
from tests.browser.looking import fits, shows, until, usable

STORES = r"""
cd "$WINDFALL_CHECKPOINT_DIR"
head -c 20000000 /dev/zero | tr '\0' m > model.bin
mkdir -p '<img src=x onerror=window.harmed=1>' && echo small > '<img src=x onerror=window.harmed=1>/notes.txt'
"""


@pytest.fixture(scope="module")
def stored(windfall):
    run = windfall.windfall(
        "run", "-d", "--checkpoint", "--clean", "--name", "stores", "--", "sh", "-c", STORES
    )
    job_id = run.stdout.split()[-1]
    windfall.wait_for([job_id])
    return job_id


def test_files_of_a_job_become_downloads(open_page, windfall, stored, axe, tmp_path):
    seen = open_page(windfall, accept_downloads=True)
    seen.sign_in(windfall, view=f"/job/{stored}/files")
    shows(seen, "model.bin", "20 MB", "notes.txt")
    usable(seen, axe)
    for name, content in (("model.bin", b"m" * 20_000_000), ("notes.txt", b"small\n")):
        with seen.page.expect_download() as download:
            seen.page.click(f"tr:has-text('{name}') button")
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
    assert seen.page.evaluate("window.harmed") is None


@pytest.fixture(scope="module")
def waiting(windfall, filled):
    """Two jobs of one share that wait behind one another."""
    batch = windfall.client("batch")
    policy = batch.create_scheduling_policy(name="turns", fairsharePolicy={"shareDecaySeconds": 600})["arn"]
    order = batch.describe_job_queues(jobQueues=["page"])["jobQueues"][0]["computeEnvironmentOrder"]
    batch.create_job_queue(
        jobQueueName="shared", priority=1, computeEnvironmentOrder=order, schedulingPolicyArn=policy
    )
    definition = a_definition(batch, "many-gpus", "true", gpus=64)
    submit = {"jobQueue": "shared", "jobDefinition": definition, "shareIdentifier": "research"}
    assert filled.waiting
    return [batch.submit_job(jobName=name, **submit)["jobId"] for name in ("earlier", "later")]


def test_a_priority_is_changed_with_its_consequence_told(open_page, windfall, waiting, axe):
    seen = open_page(windfall)
    seen.sign_in(windfall, role="submit", view=f"/job/{waiting[1]}")
    shows(seen, "share research, priority 0")
    seen.page.click("text=priority…")
    seen.page.fill("dialog input", "7")
    shows(seen, "0 jobs of its share would go before it; 1 do now", f"windfall priority {waiting[1]} 7")
    usable(seen, axe)
    seen.page.click("dialog .danger")
    shows(seen, "share research, priority 7")
    seen.go(f"/job/{waiting[1]}/events")
    shows(seen, "priority changed", "from 0 to 7 by")
    answer = windfall.windfall("priority", waiting[1], "3", "--preview")
    assert "would have priority 3 in share research, 7 before" in answer.stdout


def test_what_if_is_answered_by_the_scheduler(open_page, windfall, waiting, axe):
    seen = open_page(windfall)
    seen.sign_in(windfall, view="/queues/shared")
    shows(seen, "What if", "earlier", "later")
    seen.page.click("form:has-text('more of') button")
    until(seen.page, "document.querySelector('[aria-label=\"What if\"] b') !== null")
    usable(seen, axe)
    fits(seen)
    assert seen.page.locator("[aria-label='What if'] .problem").all_inner_texts() == []


VIEWS = ["/now", "/jobs", "/queues", "/cost", "/schedules", "/machines"]


def test_every_view_says_what_fails_and_goes_on_when_it_is_over(open_page, windfall, filled):
    seen = open_page(windfall)
    seen.sign_in(windfall, view="/now")
    body = json.dumps({"__type": "ServiceUnavailable", "message": "the storage of records is away"})

    def refused(route):
        if route.request.url.endswith("/WhoAmI"):
            route.continue_()
        else:
            route.fulfill(status=503, content_type="application/json", body=body)

    for view in [*VIEWS, f"/job/{filled.running}"]:
        seen.page.route("**/windfall/v1/*", refused)
        seen.page.goto("about:blank")
        seen.page.goto(f"{seen.url}/ui/#{view}")
        shows(seen, "the storage of records is away")
        seen.page.unroute("**/windfall/v1/*")
        # Most ask again by themselves; what is asked once has a button.
        until(
            seen.page,
            "[...document.querySelectorAll('.problem button')].forEach((it) => it.click()),"
            " !document.body.innerText.includes('the storage of records is away')",
        )
