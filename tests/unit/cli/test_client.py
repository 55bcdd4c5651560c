"""The signed client: what it sends to each of the three APIs, and how failures become sentences."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.unit.cli.fake_daemon import Error, fake_daemon
from windfall.aws_api.protocol.keys import Role, create_key, revoke_key
from windfall.cli.client import Client, connect
from windfall.cli.endpoint import Endpoint, find_endpoint, no_address
from windfall.cli.errors import CliError, NoDaemon, RequestRefused
from windfall.daemon.directory import DataDirectory


def test_each_api_is_asked_in_its_own_way_and_signed(daemon, client):
    daemon.answers.update(describejobs={"jobs": []}, GetLogEvents={"events": []}, Status={"a": 1})
    assert client.batch("DescribeJobs", jobs=["x"], nextToken=None) == {"jobs": []}
    assert client.logs("GetLogEvents", logStreamName="s") == {"events": []}
    assert client.own("Status") == {"a": 1}
    assert [(one.operation, one.service, one.params) for one in daemon.asked] == [
        ("describejobs", "batch", {"jobs": ["x"]}),
        ("GetLogEvents", "logs", {"logStreamName": "s"}),
        ("Status", "windfall", {}),
    ]


def test_pages_are_put_together_up_to_the_limit(daemon, client):
    pages = {None: ([1, 2], "a"), "a": ([3, 4], "b"), "b": ([5], None)}

    def answer(params):
        items, token = pages[params.get("nextToken")]
        return {"jobs": items, "nextToken": token}

    daemon.answers["listjobs"] = answer
    assert client.pages("ListJobs", "jobs") == [1, 2, 3, 4, 5]
    assert client.pages("ListJobs", "jobs", 3) == [1, 2, 3]
    assert len(daemon.asked) == 5


def test_a_refusal_is_told_without_the_wrapping_of_aws(daemon, client):
    text = "Error executing request, Exception : Job queue x does not exist, RequestId: 1f-2e"
    daemon.answers["submitjob"] = Error("ClientException", text)
    with pytest.raises(RequestRefused, match=r"^Job queue x does not exist$") as refused:
        client.batch("SubmitJob")
    assert refused.value.code == "ClientException"


def test_what_is_no_windfall_is_said_to_be_none(daemon, client):
    daemon.answers["Status"] = b"<html>hello</html>"
    with pytest.raises(CliError, match="is not a Windfall daemon"):
        client.own("Status")


def test_a_daemon_that_is_gone(tmp_path):
    with fake_daemon(tmp_path / "d", time.time) as gone:
        url = gone.url
    with pytest.raises(NoDaemon, match=f"no Windfall daemon answers at {url}; start one with `windfall up`"):
        connect(tmp_path / "d").own("Status")


def test_an_address_that_is_none():
    with pytest.raises(CliError, match="is not an address; set AWS_ENDPOINT_URL_BATCH"):
        Client(Endpoint("nonsense", "k", "s")).own("Status")


AWS = {
    "AWS_ENDPOINT_URL_BATCH": "http://h:1",
    "AWS_ACCESS_KEY_ID": "AK",
    "AWS_SECRET_ACCESS_KEY": "SK",
    "AWS_REGION": "eu-west-1",
}


def test_files_come_before_variables(daemon):
    found = find_endpoint(daemon.directory, AWS)
    assert (found.url, found.access_key_id, found.region) == (
        daemon.url,
        daemon.key.access_key_id,
        "eu-west-1",
    )


def test_the_key_of_the_environment_is_used_where_the_files_know_it(daemon):
    other = create_key(daemon.directory / "keys.json", role=Role.SUBMIT, now=1)
    chosen = {"AWS_ACCESS_KEY_ID": other.access_key_id}
    assert find_endpoint(daemon.directory, chosen).secret_access_key == other.secret_access_key
    revoke_key(daemon.directory / "keys.json", other.access_key_id, now=2)
    assert find_endpoint(daemon.directory, chosen).access_key_id == daemon.key.access_key_id


def test_variables_do_without_files(tmp_path, monkeypatch):
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path / "none"))
    assert find_endpoint(None, AWS) == Endpoint("http://h:1", "AK", "SK", None, "eu-west-1")
    with pytest.raises(NoDaemon, match="is known in"):
        find_endpoint(None, {})


def test_a_named_directory_means_no_other_daemon(tmp_path):
    with pytest.raises(NoDaemon, match="is known in"):
        find_endpoint(tmp_path / "none", AWS)


def test_address_from_the_file_and_key_from_the_variables(daemon):
    (daemon.directory / "keys.json").unlink()
    keys = {name: value for name, value in AWS.items() if "URL" not in name}
    assert find_endpoint(daemon.directory, keys).url == daemon.url
    with pytest.raises(CliError, match="ask its owner for a key"):
        find_endpoint(daemon.directory, {})


COLLEAGUE = {**AWS, "AWS_ACCESS_KEY_ID": "WNDFCOLLEAGUE", "AWS_SECRET_ACCESS_KEY": "SK"}


@pytest.fixture
def own_daemon(daemon, monkeypatch, tmp_path):
    """A daemon in the place where the user's own is looked for, which nothing names."""
    monkeypatch.delenv("WINDFALL_DATA")
    monkeypatch.setattr("windfall.cli.endpoint.default_data", lambda: tmp_path / "data")
    return daemon


def test_variables_with_the_key_of_another_daemon_win_over_the_own_one_and_it_is_said(
    own_daemon, windfall, monkeypatch
):
    found = find_endpoint(None, COLLEAGUE)
    assert (found.url, found.access_key_id) == ("http://h:1", "WNDFCOLLEAGUE")
    for name, value in {**COLLEAGUE, "AWS_ENDPOINT_URL_BATCH": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    ran = windfall("status")
    assert ran.err.startswith(
        "windfall: using the daemon at http://127.0.0.1:1, which AWS_ENDPOINT_URL_BATCH"
    )
    assert f"--data {own_daemon.directory}" in ran.err


@pytest.mark.parametrize(
    "changed",
    [
        {"AWS_ACCESS_KEY_ID": "AKIAOFAWS"},
        {"AWS_SECRET_ACCESS_KEY": None},
        {"AWS_ENDPOINT_URL_BATCH": None},
        {"AWS_ENDPOINT_URL_BATCH": "own"},
        {"AWS_ACCESS_KEY_ID": "own"},
        {"WINDFALL_DATA": "own"},
    ],
)
def test_the_own_daemon_is_meant_by_variables_that_are_not_those_of_another(own_daemon, changed):
    of_own = {
        "AWS_ENDPOINT_URL_BATCH": own_daemon.url,
        "AWS_ACCESS_KEY_ID": own_daemon.key.access_key_id,
        "WINDFALL_DATA": str(own_daemon.directory),
    }
    wanted = COLLEAGUE | {name: of_own[name] if value == "own" else value for name, value in changed.items()}
    found = find_endpoint(None, {name: value for name, value in wanted.items() if value is not None})
    assert (found.url, found.instead_of) == (own_daemon.url, None)


def test_a_daemon_that_does_not_know_the_own_keys_is_another_users(daemon, client):
    daemon.answers["Status"] = Error("UnrecognizedClientException", "The key is not valid here.", 403)
    with pytest.raises(
        CliError, match=r"probably another user's; start your own with `windfall up --port 0`"
    ):
        client.own("Status")
    endpoint = Endpoint(daemon.url, daemon.key.access_key_id, daemon.key.secret_access_key)
    with (
        contextlib.closing(Client(endpoint)) as other,
        pytest.raises(CliError, match=r"does not know the key of AWS_ACCESS_KEY_ID.*ask its owner"),
    ):
        other.own("Status")


def test_a_daemon_of_the_machine_is_named_to_who_has_none(tmp_path, monkeypatch):
    monkeypatch.delenv("WINDFALL_DATA", raising=False)
    monkeypatch.setattr("windfall.cli.endpoint.default_data", lambda: tmp_path / "own")
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "address").write_text("http://127.0.0.1:8470")
    told = str(no_address(DataDirectory(tmp_path / "own"), tmp_path / "system"))
    assert "to use that of this machine at http://127.0.0.1:8470, ask its administrator" in told
    assert "`windfall up --port 0`" in told
    assert "this machine" not in str(no_address(DataDirectory(tmp_path / "named"), tmp_path / "system"))


def test_secrets_are_not_in_representations():
    assert "SK" not in repr(Endpoint("http://h:1", "AK", "SK", "TOKEN"))
    assert "TOKEN" not in repr(Endpoint("http://h:1", "AK", "SK", "TOKEN"))


def test_a_daemon_of_an_earlier_version_is_to_be_started_again(daemon, client):
    daemon.answers["Novelty"] = Error("UnknownOperationException", "There is no operation.", 404)
    for ask in (client.own, client.own_bytes):
        with pytest.raises(
            CliError, match=r"does not know Novelty; start it again .*`windfall down` \(jobs go on\)"
        ):
            ask("Novelty")
