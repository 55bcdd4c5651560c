"""Which storage a submitter's job may name, when it is submitted and when each of its attempts starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TestWorld, a_busy_world, a_definition, a_job
from tests.unit.control.trainings import a_training
from windfall.control import events
from windfall.control.commands.storage import AddStorage, RemoveStorage
from windfall.control.instructions import StartAttempt
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import JobId
from windfall.jobs.staging import Archive, Channel, Output, Staging
from windfall.jobs.states import FAILED
from windfall.jobs.storage import StorageLayout, StoragePlace, allowed
from windfall.jobs.submitters import Submitter

ROOT = "file:///srv/windfall/objects"
ALICE, VISION = Submitter(key_id="ALICE"), Submitter("vision", "VISION")
ADMIN = Submitter(key_id="ROOT", is_admin=True)


@pytest.fixture
def world() -> TestWorld:
    return a_busy_world(storage=StorageLayout(ROOT, ROOT, private=("file:///srv/windfall",)))


def registered(world: TestWorld, uri: str, *, write: bool = True, tenant: str | None = None) -> StoragePlace:
    place = StoragePlace(uri, write, tenant)
    assert world.happens(AddStorage(place)) == place
    return place


@pytest.mark.parametrize(
    "uri",
    [
        "file:///srv/windfall",
        "file:///etc",
        f"{ROOT}/checkpoints/../../keys.json",
        f"{ROOT}/tenants/vision/checkpoints/job",
        "s3://company/payroll",
    ],
)
def test_a_submit_key_names_nothing_but_its_own(world, uri):
    for job in (a_job("a").tagged(checkpoint=uri), a_job("a")._with(parameters={"windfall-checkpoint": uri})):
        with pytest.raises(Invalid):
            world.submits(job.by(ALICE))
    assert "a" not in world.state.jobs


def test_an_admins_job_lends_its_rights_to_no_definition_of_others(world):
    named = {"windfall:checkpoint": "file:///etc"}
    world.happens(events.RegisterJobDefinition(a_definition("theirs", tags=named)))
    world.happens(events.RegisterJobDefinition(a_definition("admins", tags=named, shared=True)))
    with pytest.raises(Invalid, match="was not registered with an admin key"):
        world.submits(a_job("a")._with(definition="theirs").by(ADMIN))
    assert "a" not in world.state.jobs
    world.submits(a_job("b")._with(definition="admins").by(ADMIN))
    # What the admin names himself counts, whatever the definition says.
    own = a_job("c")._with(definition="theirs").tagged(checkpoint="file:///srv/kept")
    world.submits(own.by(ADMIN))
    assert {"b", "c"} <= world.state.jobs.keys()


def test_the_words_of_a_definition_have_the_submitters_rights(world):
    tagged = a_definition("tagged", tags={"windfall:checkpoint": "file:///etc"})
    with_parameter = a_definition("with-parameter", parameters={"windfall-checkpoint": "file:///etc"})
    for definition in (tagged, with_parameter):
        world.happens(events.RegisterJobDefinition(definition))
        with pytest.raises(
            Invalid, match=r"may not write to file:///etc.*windfall storage add file:///etc --write"
        ):
            world.submits(a_job("a").of(definition.name).by(ALICE))


def test_an_admin_key_names_what_it_likes(world):
    world.submits(a_job("a").tagged(checkpoint="file:///anywhere").by(ADMIN))
    assert start_of(world, "a").storage.grants is None


def test_each_tenant_has_a_root_of_its_own(world):
    for name, submitter in (("a", ALICE), ("b", VISION)):
        world.submits(a_job(name).tagged(checkpoint="true").by(submitter))
    assert world.job("a").submission.staging.checkpoints.uri == f"{ROOT}/checkpoints/a"
    assert world.job("b").submission.staging.checkpoints.uri == f"{ROOT}/tenants/vision/checkpoints/b"
    with pytest.raises(Invalid):
        world.submits(a_job("c").tagged(checkpoint=f"{ROOT}/checkpoints/a").by(VISION))
    world.submits(a_job("c").tagged(checkpoint=f"{ROOT}/checkpoints/a").by(ALICE))


def test_a_registered_place_is_its_tenants_as_it_was_registered(world):
    registered(world, "file:///mnt/vision", tenant="vision")
    registered(world, "file:///mnt/public", write=False)
    world.submits(a_job("a").tagged(checkpoint="file:///mnt/vision/run1").by(VISION))
    with pytest.raises(Invalid, match="may not write to file:///mnt/vision/run1"):
        world.submits(a_job("b").tagged(checkpoint="file:///mnt/vision/run1").by(ALICE))
    with pytest.raises(Invalid, match="may not write to file:///mnt/public"):
        world.submits(a_job("b").tagged(checkpoint="file:///mnt/public").by(ALICE))


def test_places_outlive_the_daemon(world):
    place = registered(world, "file:///mnt/vision", tenant="vision")
    world.restarted()
    assert list(world.state.storage_places.values()) == [place]
    world.happens(RemoveStorage(place.uri, "vision"))
    world.restarted()
    assert not world.state.storage_places


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("file:///srv/windfall", "the daemon's own directory"),
        ("file:///srv", "the daemon's own directory"),
        ("file:///", "the daemon's own directory"),
        ("file:///srv/windfall/agent", "the daemon's own directory"),
        ("file:///srv/windfall/keys.json", "the daemon's own directory"),
        (ROOT, "belongs to several tenants"),
        (f"{ROOT}/tenants", "belongs to several tenants"),
        ("s3://bucket", "this daemon has no S3"),
        ("s3://", "names no bucket"),
        ("s3://Not_A_Bucket", "names no bucket"),
        ("https://host/x", "is not object storage"),
        ("file:///mnt/../etc", "goes upwards"),
        ("/mnt", "is not object storage"),
    ],
)
def test_what_must_not_or_cannot_be_used_is_not_registered(world, uri, words):
    with pytest.raises(Invalid, match=words):
        registered(world, uri)
    assert not world.state.storage_places


def test_a_place_is_removed_for_whom_it_was_registered(world):
    registered(world, "file:///mnt/a", tenant="vision")
    with pytest.raises(NotFound, match="not registered for every tenant"):
        world.happens(RemoveStorage("file:///mnt/a"))
    with pytest.raises(Invalid, match="cannot be a tenant"):
        registered(world, "file:///mnt/a", tenant="../x")


def test_what_an_attempt_may_use_goes_with_it(world):
    registered(world, "file:///mnt/public", write=False)
    world.submits(a_job("a").by(VISION))
    storage = start_of(world, "a").storage
    assert allowed(storage.grants, f"{ROOT}/tenants/vision/buckets/b", write=True)
    assert allowed(storage.grants, "file:///mnt/public", write=False)
    assert not allowed(storage.grants, f"{ROOT}/buckets/b", write=False)
    assert storage.bucket_root == f"{ROOT}/tenants/vision/buckets"


def test_a_place_that_was_removed_is_refused_to_the_next_attempt(world):
    place = registered(world, "file:///mnt/vision")
    world.submits(a_job("a").tagged(checkpoint="file:///mnt/vision/run1").by(VISION).retried(2))
    world.starts("a")
    world.happens(RemoveStorage(place.uri, place.tenant))
    world.exits("a", 1)
    first, second = world.job("a").attempts
    assert (first.exit_code, second.exit_code) == (1, None)
    assert second.reason is not None
    assert second.reason.startswith(
        "ResourceInitializationError: this job may not write to file:///mnt/vision/run1"
    )
    assert world.state_of("a") is FAILED


def test_jobs_of_an_earlier_version_keep_what_they_name(world):
    # Their keys are not known any more, and what they name was accepted when they came.
    world.submits(a_job("a").tagged(checkpoint="file:///mnt/old").by(ADMIN).retried(2))
    live = world.state.jobs[JobId("a")]
    live.submission = replace(live.submission, submitter=Submitter("vision"))
    world.starts("a").exits("a", 1)
    grants = start_of(world, "a").storage.grants
    assert allowed(grants, "file:///mnt/old", write=True)
    assert not allowed(grants, "file:///mnt", write=False)


@pytest.mark.parametrize(
    "staging",
    [
        Staging(channels=(Channel("c", "file:///srv/windfall"),)),
        Staging(archives=(Archive("file:///srv/windfall/code.tar.gz", "/opt/ml/code"),)),
        Staging(outputs=(Output("/opt/ml/model", "file:///etc/cron.d/model.tar.gz"),)),
        Staging(outputs=(Output("/opt/ml/model", f"{ROOT}/buckets/b/../../../keys.json"),)),
    ],
)
def test_a_training_job_names_nothing_but_its_own(world, staging):
    command = replace(a_training("t", submitter=ALICE), staging=staging)
    with pytest.raises(Invalid):
        world.happens(command)
    assert not world.state.jobs


@pytest.mark.parametrize(
    "url", ["file:///srv/windfall", "/etc", "ext::sh -c id", "https://-x", "http://host/x"]
)
def test_a_submit_key_names_repositories_elsewhere_alone(world, url):
    with pytest.raises(Invalid):
        world.submits(a_job("a").tagged(git=f"{url}@main").by(ALICE))
    assert "a" not in world.state.jobs


def test_an_admin_key_names_repositories_of_the_host(world):
    world.submits(a_job("a").tagged(git="file:///srv/code@main").by(ADMIN))
    assert start_of(world, "a").storage.may_clone_locally
    world.submits(a_job("b").tagged(git="https://host/x@main").by(ALICE))
    assert not start_of(world, "b").storage.may_clone_locally


def start_of(world: TestWorld, job_id: str) -> StartAttempt:
    token = world.job(job_id).attempts[-1].token
    return next(it for it in world.asked if isinstance(it, StartAttempt) and it.token == token)
