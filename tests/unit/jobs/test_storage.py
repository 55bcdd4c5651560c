"""What a URI names, and which grants cover it."""

from __future__ import annotations

import pytest

from windfall.jobs.storage import (
    BadLocation,
    Grant,
    Location,
    StorageAccess,
    StorageLayout,
    StoragePlace,
    allowed,
    locate,
)

DATA = "file:///srv/windfall"
FILES = StorageLayout(f"{DATA}/objects", f"{DATA}/objects", private=(DATA,))
SERVED = StorageLayout("s3://windfall", serves_s3=True, private=(DATA,))


@pytest.mark.parametrize(
    ("uri", "scheme", "segments"),
    [
        ("file:///srv//kept/", "file", ("srv", "kept")),
        ("file://localhost/srv/./kept", "file", ("srv", "kept")),
        ("file:///srv/with%20space", "file", ("srv", "with space")),
        ("file:///", "file", ()),
        ("s3://bucket", "s3", ("bucket",)),
        ("s3://bucket/a/b/", "s3", ("bucket", "a", "b")),
        ("s3://bucket/a%2Fb", "s3", ("bucket", "a%2Fb")),
    ],
)
def test_a_uri_names_one_place(uri: str, scheme: str, segments: tuple[str, ...]):
    assert locate(uri) == Location(scheme, segments)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///srv/objects/../../etc",
        "file:///srv/objects/%2e%2e/%2e%2e/etc",
        "file:///srv/objects/..%2f..%2fetc",
        "file:///srv/%00/etc",
        "file:///srv\n/etc",
        "file://host/etc",
        "file://etc",
        "file:///srv?x",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://../other",
        "s3://key:secret@bucket",
        "S3://bucket",
        " s3://bucket",
        "/etc",
        "ftp://host/x",
        "",
    ],
)
def test_what_could_name_two_places_names_none(uri: str):
    with pytest.raises(BadLocation):
        locate(uri)
    assert not allowed((Grant("file:///", write=True), Grant("s3://", write=True)), uri, write=False)


def test_a_grant_covers_whole_segments_below_it():
    grants = (Grant("file:///srv/team/", write=True), Grant("s3://data/public"))
    assert allowed(grants, "file:///srv/team", write=True)
    assert allowed(grants, "file:///srv/team/a/b", write=True)
    assert not allowed(grants, "file:///srv/team2", write=False)
    assert not allowed(grants, "file:///srv", write=False)
    assert allowed(grants, "s3://data/public/x", write=False)
    assert not allowed(grants, "s3://data/public/x", write=True)
    assert not allowed(grants, "s3://data", write=False)
    assert not allowed((), "s3://data", write=False)
    assert allowed(None, "file:///anywhere", write=True)


def test_what_is_left_out_of_a_grant_is_reached_neither_from_inside_nor_from_above():
    grants = (Grant("s3://", write=True, but_not=("s3://windfall/tenants",)),)
    assert allowed(grants, "s3://windfall/models", write=True)
    assert allowed(grants, "s3://other", write=True)
    assert not allowed(grants, "s3://windfall/tenants/vision/x", write=False)
    assert not allowed(grants, "s3://windfall", write=False)


def test_a_tenant_owns_its_part_of_the_objects():
    default, vision = FILES.grants("default", ()), FILES.grants("vision", ())
    assert allowed(default, f"{DATA}/objects/checkpoints/job", write=True)
    assert allowed(default, f"{DATA}/objects/buckets/b/k", write=True)
    assert allowed(vision, f"{DATA}/objects/tenants/vision/checkpoints/job", write=True)
    assert allowed(vision, f"{DATA}/objects/tenants/vision/buckets/b", write=True)
    for uri in (f"{DATA}/objects/checkpoints/job", f"{DATA}/objects/buckets/b", f"{DATA}/objects", DATA):
        assert not allowed(vision, uri, write=False)
    for uri in (
        f"{DATA}/objects/tenants/vision/buckets/b",
        f"{DATA}/objects",
        f"{DATA}/keys.json",
        "file:///etc",
    ):
        assert not allowed(default, uri, write=False)
    assert FILES.bucket_root("vision") == f"{DATA}/objects/tenants/vision/buckets"


def test_buckets_of_the_own_server_are_the_default_tenants_until_they_are_registered_for_another():
    assert allowed(SERVED.grants("default", ()), "s3://data/x", write=True)
    assert not allowed(SERVED.grants("vision", ()), "s3://data/x", write=False)
    places = (StoragePlace("s3://data", write=True, tenant="vision"), StoragePlace("s3://shared"))
    assert not allowed(SERVED.grants("default", places), "s3://data/x", write=False)
    assert allowed(SERVED.grants("default", places), "s3://shared/x", write=True)
    assert allowed(SERVED.grants("vision", places), "s3://data/x", write=True)
    assert allowed(SERVED.grants("vision", places), "s3://shared/x", write=False)
    assert not allowed(SERVED.grants("vision", places), "s3://shared/x", write=True)
    assert not allowed(
        SERVED.grants("default", ()), "s3://windfall/tenants/vision/checkpoints/j", write=False
    )


def test_an_external_s3_gives_a_tenant_its_checkpoints_alone():
    outside = StorageLayout("s3://company/windfall")
    grants = outside.grants("default", ())
    assert allowed(grants, "s3://company/windfall/checkpoints/job", write=True)
    assert not allowed(grants, "s3://company/payroll", write=False)


@pytest.mark.parametrize("uri", [DATA, f"{DATA}/keys.json", f"{DATA}/agent", "file:///srv", "file:///"])
def test_a_place_around_or_in_the_data_directory_grants_nothing(uri: str):
    assert FILES.is_private(locate(uri))
    grants = FILES.grants("default", (StoragePlace(uri, write=True),))
    assert not allowed(grants, f"{DATA}/keys.json", write=False)


def test_a_bucket_is_a_directory_of_the_tenant_where_there_is_no_s3():
    assert StorageAccess((), "file:///o/buckets").resolved("s3://b/k") == "file:///o/buckets/b/k"
    assert StorageAccess(()).resolved("s3://b/k") == "s3://b/k"
