"""What tags and parameters of a Batch job ask for, and what is answered when they make no sense."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TestWorld, a_busy_world, a_definition, a_job
from windfall.control import events
from windfall.control.instructions import StartAttempt
from windfall.jobs.errors import Invalid
from windfall.jobs.staging import CHECKPOINT_PATH, Checkpoints, GitSource, Staging
from windfall.jobs.storage import StorageLayout

ROOT = "file:///var/lib/windfall/objects/"


@pytest.fixture
def world() -> TestWorld:
    return a_busy_world(storage=StorageLayout(ROOT))


def test_a_job_without_options_is_as_it_was(world):
    world.submits(a_job("a"))
    submission = world.job("a").submission
    assert (submission.staging, submission.free_interruptions, submission.budget_usd) == (None, False, None)


def test_checkpoints_go_below_the_root_by_job(world):
    world.submits(a_job("a").tagged(checkpoint="true"))
    submission = world.job("a").submission
    uri = "file:///var/lib/windfall/objects/checkpoints/a"
    assert submission.staging == Staging(Checkpoints(uri, CHECKPOINT_PATH))
    assert submission.free_interruptions


@pytest.mark.parametrize("uri", ["s3://bucket", "s3://bucket/some/prefix", "file:///srv/kept"])
def test_checkpoints_go_where_the_tag_says(world, uri):
    world.submits(a_job("a").tagged(checkpoint=uri + "/"))
    staging = world.job("a").submission.staging
    assert staging is not None
    assert staging.checkpoints == Checkpoints(uri)


@pytest.mark.parametrize("text", ["false", "no", ""])
def test_checkpoints_can_be_declined(world, text):
    world.submits(a_job("a").tagged(checkpoint=text))
    assert world.job("a").submission.staging is None


@pytest.mark.parametrize("text", ["somewhere", "https://host/x", "s3://", "file://relative", "/srv/kept"])
def test_a_place_that_is_none_is_refused(world, text):
    with pytest.raises(Invalid, match="must be true, s3://bucket/prefix or file:///directory"):
        world.submits(a_job("a").tagged(checkpoint=text))
    assert "a" not in world.state.jobs


def test_without_a_root_the_caller_is_told_what_to_do():
    world = a_busy_world()
    with pytest.raises(Invalid, match="start it with an object store, or name a place yourself"):
        world.submits(a_job("a").tagged(checkpoint="true"))
    world.submits(a_job("a").tagged(checkpoint="s3://bucket/a"))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("https://host/team/code.git@main", GitSource("https://host/team/code.git", "main")),
        ("git@host:team/code.git@v1.2", GitSource("git@host:team/code.git", "v1.2")),
        ("file:///srv/code@release/3", GitSource("file:///srv/code", "release/3")),
        ("https://me@host/code@4f2a91c", GitSource("https://me@host/code", "4f2a91c")),
    ],
)
def test_code_from_git_is_an_address_and_a_revision(world, text, source):
    world.submits(a_job("a").tagged(git=text))
    submission = world.job("a").submission
    assert submission.staging == Staging(git=source)
    assert not submission.free_interruptions


@pytest.mark.parametrize(
    "text",
    [
        "https://host/code",
        "https://t0ken@host/code",
        "git@host:team/code",
        "host/code@",
        "--upload-pack=x/y@main",
        "a/b@-f",
        "",
    ],
)
def test_code_without_a_revision_is_refused(world, text):
    with pytest.raises(Invalid, match="must be URL@REVISION"):
        world.submits(a_job("a").tagged(git=text))


@pytest.mark.parametrize(
    "text",
    ["https://me:t0ken@host/code@main", "ssh://me:t0ken@host/code@main", "https://host/code?t=t0ken@main"],
)
def test_an_address_with_a_token_in_it_is_refused_without_it(world, text):
    with pytest.raises(Invalid, match="an admin can give a credential: windfall secret git ") as refused:
        world.submits(a_job("a").tagged(git=text))
    assert "t0ken" not in str(refused.value)
    assert "a" not in world.state.jobs


@pytest.mark.parametrize(("text", "usd"), [("5", 5.0), ("$12.50", 12.5), (" 0.25 ", 0.25)])
def test_a_budget_is_a_number_of_dollars(world, text, usd):
    world.submits(a_job("a").tagged(budget_usd=text))
    assert world.job("a").submission.budget_usd == usd


@pytest.mark.parametrize("text", ["0", "-1", "much", "", "nan", "inf"])
def test_a_budget_that_is_none_is_refused(world, text):
    with pytest.raises(Invalid, match="must be a number of US dollars above 0"):
        world.submits(a_job("a").tagged(budget_usd=text))


def test_the_jobs_own_words_come_before_the_definitions(world):
    definition = a_definition(
        "kept",
        tags={"windfall:checkpoint": "true", "windfall:budget-usd": "9"},
        parameters={"windfall-git": "https://host/code@main", "windfall-budget-usd": "8"},
    )
    world.happens(events.RegisterJobDefinition(definition))
    job = a_job("a").of("kept").tagged(checkpoint="s3://mine/a")
    command = replace(job.command, parameters={"windfall-budget-usd": "3"})
    world.happens(command)
    submission = world.job("a").submission
    assert submission.staging == Staging(Checkpoints("s3://mine/a"), GitSource("https://host/code", "main"))
    assert submission.budget_usd == 3.0


def test_a_child_of_an_array_has_a_prefix_of_its_own(world):
    world.submits(a_job("many").array(2).tagged(checkpoint="s3://bucket/many"))
    uris = [start.staging.checkpoints.uri for start in world.asked_for(StartAttempt)]
    assert uris == ["s3://bucket/many/0", "s3://bucket/many/1"]


def test_the_next_attempt_takes_the_commit_of_the_first(world):
    world.submits(a_job("a").tagged(git="https://host/code@main", checkpoint="true"))
    (start,) = world.asked_for(StartAttempt)
    assert start.staging.git.revision == "main"
    world.happens(events.AttemptProgressed(world.token("a"), world.now, commit="4f2a91c"))
    world.happens(events.AttemptLost(world.token("a"), world.now))
    (again,) = world.asked_for(StartAttempt)
    assert again.staging.git.revision == "4f2a91c"
    assert again.staging.checkpoints == start.staging.checkpoints
    assert again.fence > start.fence


def test_a_job_lowers_the_limit_of_its_log(world):
    world.submits(a_job("a").tagged(log_limit="500m"))
    assert world.job("a").submission.log_limit_bytes == 500 << 20
    assert [start.log_limit_bytes for start in world.asked_for(StartAttempt)] == [500 << 20]
    for text in ("", "500", "0m", "much"):
        with pytest.raises(Invalid, match="windfall:log-limit must be a size from 1m on"):
            world.submits(a_job("b").tagged(log_limit=text))
