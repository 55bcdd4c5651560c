"""Which URIs are object storage."""

from __future__ import annotations

import pytest

from windfall.objects.errors import BadUri
from windfall.objects.opening import open_objects

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": "/dev/null"}


def test_files_and_buckets(tmp_path):
    assert open_objects(f"file://{tmp_path}/x/").uri == f"file://{tmp_path}/x"
    assert open_objects("s3://bucket/a/b/", environment=KEYS).uri == "s3://bucket/a/b"
    assert open_objects("s3://bucket", environment=KEYS).uri == "s3://bucket"


def test_a_percent_sign_in_a_file_uri_is_an_escape(tmp_path):
    open_objects(f"file://{tmp_path}/with%20space").put("a", b"1")
    assert (tmp_path / "with space" / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/plain/path",
        "https://bucket/x",
        "gs://bucket/x",
        "file://host/path",
        "file:relative",
        "file:///a/../b",
        "s3:///prefix",
        "s3://key:secret@bucket/x",
        "s3://bucket/a//b",
        "s3://bucket/../x",
        "s3://bucket/x?versionId=1",
        "file:///a\0b",
    ],
)
def test_what_is_none_is_refused_with_advice(uri):
    with pytest.raises(BadUri, match=r"(?i)give|write|without"):
        open_objects(uri, environment=KEYS)
