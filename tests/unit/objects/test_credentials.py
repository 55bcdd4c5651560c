"""Where keys and addresses come from, in which order, and what is refused."""

from __future__ import annotations

import pytest

from windfall.objects.credentials import DEFAULT_REGION, ObjectOptions, resolved
from windfall.objects.errors import BadUri, Refused

NOWHERE = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
IN_ENVIRONMENT = {**NOWHERE, "AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "env secret"}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id=file\naws_secret_access_key=file secret\n"
        "[team]\naws_access_key_id = team\naws_secret_access_key = team%secret\naws_session_token = token\n"
    )
    (tmp_path / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile team]\nregion=eu-north-1\nendpoint_url=https://s3.example.org\n"
    )
    return {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }


def test_what_the_caller_gives_goes_first(files):
    given = ObjectOptions("http://127.0.0.1:1", "own", "own secret", region="here")
    found = resolved(given, {**files, **IN_ENVIRONMENT, "AWS_ENDPOINT_URL_S3": "https://other.example.org"})
    assert (found.access_key_id, found.endpoint_url, found.region) == ("own", "http://127.0.0.1:1", "here")


def test_then_the_environment_with_its_token():
    found = resolved(ObjectOptions(), {**IN_ENVIRONMENT, "AWS_SESSION_TOKEN": "t", "AWS_DEFAULT_REGION": "r"})
    assert (found.access_key_id, found.session_token, found.region) == ("env", "t", "r")


def test_then_the_shared_files(files):
    found = resolved(ObjectOptions(), files)
    assert (found.access_key_id, found.secret_access_key, found.region) == (
        "file",
        "file secret",
        "eu-west-1",
    )


def test_keys_in_the_environment_go_before_a_profile_that_is_named_there(files):
    assert (
        resolved(ObjectOptions(), {**IN_ENVIRONMENT, **files, "AWS_PROFILE": "team"}).access_key_id == "env"
    )


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_profile_by_name(files, way):
    environment = {**IN_ENVIRONMENT, **files} if way == "option" else {**files, "AWS_PROFILE": "team"}
    found = resolved(ObjectOptions(profile="team" if way == "option" else None), environment)
    assert (found.access_key_id, found.secret_access_key, found.session_token) == (
        "team",
        "team%secret",
        "token",
    )
    assert (found.region, found.endpoint_url) == ("eu-north-1", "https://s3.example.org")


def test_the_address_of_s3_goes_before_that_of_everything():
    environment = {**IN_ENVIRONMENT, "AWS_ENDPOINT_URL": "http://localhost:1"}
    assert resolved(ObjectOptions(), environment).endpoint_url == "http://localhost:1"
    environment["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:2"
    assert resolved(ObjectOptions(), environment).endpoint_url == "http://127.0.0.1:2"


def test_without_keys_the_machine_is_asked_unless_that_is_forbidden():
    assert resolved(ObjectOptions(), NOWHERE).access_key_id is None
    assert resolved(ObjectOptions(), NOWHERE).region == DEFAULT_REGION
    with pytest.raises(Refused, match="set AWS_ACCESS_KEY_ID"):
        resolved(ObjectOptions(), {**NOWHERE, "AWS_EC2_METADATA_DISABLED": "true"})


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "s3.example.org"])
def test_an_address_must_be_one(url):
    with pytest.raises(BadUri, match="give http"):
        resolved(ObjectOptions(url), IN_ENVIRONMENT)


def test_unencrypted_ways_to_other_machines_must_be_allowed():
    with pytest.raises(BadUri, match="AWS_ALLOW_HTTP=true"):
        resolved(ObjectOptions("http://192.0.2.1:9000"), IN_ENVIRONMENT)
    assert resolved(ObjectOptions("http://192.0.2.1:9000"), {**IN_ENVIRONMENT, "AWS_ALLOW_HTTP": "true"})
    assert resolved(ObjectOptions("http://192.0.2.1:9000", allow_http=True), IN_ENVIRONMENT)


def test_a_profile_file_that_makes_no_sense_is_named(tmp_path):
    (tmp_path / "broken").write_text("no section = at all")
    with pytest.raises(BadUri, match="broken"):
        resolved(ObjectOptions(), {**NOWHERE, "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "broken")})


def test_secrets_are_not_shown():
    assert "hidden" not in repr(ObjectOptions("http://x", "id", "hidden", "hidden"))
