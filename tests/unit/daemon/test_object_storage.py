"""Where objects are kept, how agents learn it, and that a missing disk is not taken for a new store."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from windfall.daemon.errors import DaemonError
from windfall.daemon.object_storage import ObjectStorage, for_machines
from windfall.daemon.settings import Settings
from windfall.jobs.storage import Grant, StoragePlace
from windfall.objects.credentials import ObjectOptions, resolved
from windfall.objects.errors import Refused
from windfall.objects.opening import ANCHOR_VARIABLE


@pytest.fixture
def settings(tmp_path):
    return Settings(tmp_path / "data")


def opened(settings, told, **environment):
    settings.data.mkdir(exist_ok=True)
    storage = ObjectStorage(settings, environment, key_ids=["OWNKEY"], addresses=["http://127.0.0.1:8470"])
    storage.open(told, settings.data / "keys.json")
    return storage


def test_the_directory_is_made_at_the_first_start_and_agents_are_told(settings, tmp_path):
    told = tmp_path / "objects.json"
    storage = opened(settings, told, AWS_REGION="eu-west-1", HOME="/x")
    root = settings.data / "objects"
    assert root.is_dir()
    assert json.loads(told.read_text()) == {"AWS_REGION": "eu-west-1", ANCHOR_VARIABLE: str(root)}
    assert told.stat().st_mode & 0o777 == 0o600
    assert storage.layout.checkpoint_root("default") == f"{root.as_uri()}/checkpoints"
    assert storage.url is None


def test_one_that_was_there_and_is_missing_is_not_made_again(settings, tmp_path, caplog):
    told = tmp_path / "objects.json"
    opened(settings, told)
    (settings.data / "objects").rmdir()
    with caplog.at_level(logging.WARNING):
        opened(settings, told)
    assert not (settings.data / "objects").exists()
    assert "is missing" in caplog.text


def test_a_place_that_cannot_be_made_is_told(settings, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DaemonError, match="--objects"):
        opened(replace(settings, objects=(tmp_path / "file" / "x").as_uri()), tmp_path / "objects.json")


@pytest.mark.parametrize("key_id", ["OWNKEY", "WNDFREVOKEDORFOREIGN"])
def test_keys_of_the_api_and_own_addresses_are_not_used_for_storage(settings, tmp_path, caplog, key_id):
    told = tmp_path / "objects.json"
    with caplog.at_level(logging.WARNING):
        storage = opened(
            settings,
            told,
            AWS_ACCESS_KEY_ID=key_id,
            AWS_SECRET_ACCESS_KEY="the secret",
            AWS_SESSION_TOKEN="the token",
            AWS_ENDPOINT_URL="http://127.0.0.1:8470/",
            HOME=str(tmp_path),
        )
    assert "secret" not in told.read_text()
    assert "token" not in told.read_text()
    assert json.loads(told.read_text())["AWS_ACCESS_KEY_ID"] == "", "an agent that inherited it finds nothing"
    assert storage.layout.bucket_home is not None, "there is no S3 elsewhere"
    lines = [record.getMessage() for record in caplog.records]
    (line,) = lines
    assert line.startswith(
        f"not used for object storage: AWS_ACCESS_KEY_ID is {key_id}, a key of Windfall's API;"
    )
    assert "AWS_ENDPOINT_URL is http://127.0.0.1:8470/, which is Windfall itself" in line
    assert "the secret" not in caplog.text


def test_a_profile_that_holds_a_key_of_the_api_is_not_used(settings, tmp_path, caplog):
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[windfall]\naws_access_key_id = OWNKEY\naws_secret_access_key = s\n"
        "[aws]\naws_access_key_id = AKIAELSEWHERE\naws_secret_access_key = s\n"
    )
    told = tmp_path / "objects.json"
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "HOME": str(tmp_path)}
    opened(settings, told, AWS_PROFILE="aws", **files)
    assert json.loads(told.read_text())["AWS_PROFILE"] == "aws"
    with caplog.at_level(logging.WARNING):
        opened(settings, told, AWS_PROFILE="windfall", **files)
    variables = json.loads(told.read_text())
    assert "the profile windfall has OWNKEY" in caplog.text
    with pytest.raises(Refused):
        resolved(ObjectOptions(), {**variables, "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"})


@pytest.mark.parametrize(
    ("change", "environment", "there"),
    [
        ({}, {}, False),
        ({"s3": True}, {}, True),
        ({"objects": "s3://bucket/prefix"}, {}, True),
        ({}, {"AWS_ACCESS_KEY_ID": "x"}, True),
        ({}, {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, True),
    ],
)
def test_buckets_are_directories_only_where_there_is_no_s3(settings, change, environment, there):
    storage = ObjectStorage(replace(settings, **change), environment)
    assert (storage.layout.bucket_home is None) is there


@pytest.mark.parametrize(
    ("change", "environment", "is_admin", "why"),
    [
        ({}, {}, True, "there is no S3"),
        ({"job_role": "arn:aws:iam::1:role/r"}, {}, False, "there is no S3"),
        ({}, {"AWS_ACCESS_KEY_ID": "x"}, False, "job_role"),
        ({}, {"AWS_ACCESS_KEY_ID": "x"}, True, None),
        ({"job_role": "arn:aws:iam::1:role/r"}, {"AWS_ACCESS_KEY_ID": "x"}, False, None),
        ({"s3": True}, {}, False, None),
    ],
)
def test_it_is_known_why_a_role_opens_nothing(settings, change, environment, is_admin, why):
    storage = ObjectStorage(replace(settings, **change), environment)
    told = storage.layout.why_no_credentials(is_admin=is_admin)
    assert told is None if why is None else why in told


class FakeServer:
    """An S3 server that ends and fails when it is told to."""

    url = "http://127.0.0.1:9"

    def __init__(self):
        self.pid, self.starts, self.fault = 7, 0, None
        self.tenants, self.made = {}, []

    def set_tenants(self, tenants):
        self.tenants = tenants

    def make_buckets(self, tenants):
        self.made = sorted(tenants)

    def start(self):
        if self.fault is not None:
            raise self.fault
        self.pid, self.starts = 8, self.starts + 1
        return self.url

    def stop(self):
        self.pid = None


def test_an_s3_server_that_has_ended_is_started_again_until_it_is_closed(settings, caplog):
    storage = ObjectStorage(settings, {})
    server = storage._server = FakeServer()
    storage.restart_if_ended()
    assert server.starts == 0, "it lives"
    server.pid, server.fault = None, OSError(28, "No space left on device")
    with caplog.at_level(logging.WARNING):
        storage.restart_if_ended()
        storage.restart_if_ended()
        server.fault = None
        storage.restart_if_ended()
    assert (server.pid, server.starts) == (8, 1)
    assert [record.getMessage().count("No space left") for record in caplog.records] == [1, 0]
    storage.close()
    storage.restart_if_ended()
    assert (server.pid, server.starts) == (None, 1)


def test_the_s3_server_is_told_what_tenants_own_whenever_it_changes(settings):
    storage = ObjectStorage(replace(settings, s3=True), {})
    server = storage._server = FakeServer()
    places = (StoragePlace("s3://vision", write=True, tenant="vision"),)
    owned = {name: storage.layout.grants(name, places) for name in ("default", "vision")}
    storage.restart_if_ended(owned)
    assert server.tenants == owned
    assert Grant("s3://vision", write=True) in server.tenants["vision"]
    assert server.made == ["default", "vision"]
    assert server.starts == 1, "it begins anew if it must"
    storage.restart_if_ended(owned)
    storage.restart_if_ended(None)
    assert server.starts == 1


def test_machines_that_do_not_share_the_disk_get_no_path_of_it(settings, tmp_path):
    storage = opened(
        settings, tmp_path / "objects.json", AWS_REGION="eu-west-1", AWS_CONFIG_FILE="/x", AWS_PROFILE="p"
    )
    assert storage.for_machines == {"AWS_REGION": "eu-west-1"}


def test_keys_of_a_profile_become_variables_for_other_machines(settings, tmp_path):
    (tmp_path / "credentials").write_text(
        "[p]\naws_access_key_id = ID\naws_secret_access_key = SECRET\naws_session_token = TOKEN\n"
    )
    storage = opened(
        settings,
        tmp_path / "objects.json",
        AWS_PROFILE="p",
        AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "credentials"),
        AWS_ENDPOINT_URL_S3="https://s3.example.com",
    )
    assert storage.for_machines == {
        "AWS_ACCESS_KEY_ID": "ID",
        "AWS_SECRET_ACCESS_KEY": "SECRET",
        "AWS_SESSION_TOKEN": "TOKEN",
        "AWS_ENDPOINT_URL_S3": "https://s3.example.com",
    }


def test_an_s3_on_loopback_is_reached_at_its_other_address_or_not_at_all():
    variables = {
        "AWS_ACCESS_KEY_ID": "ID",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:8471",
        "WINDFALL_STS_URL": "http://127.0.0.1:8471",
    }
    assert for_machines(variables, {}, None) is None
    assert for_machines(variables, {}, "http://10.0.0.5:8471") == {
        "AWS_ACCESS_KEY_ID": "ID",
        "AWS_ENDPOINT_URL_S3": "http://10.0.0.5:8471",
        "WINDFALL_STS_URL": "http://10.0.0.5:8471",
        "AWS_ALLOW_HTTP": "true",
    }
