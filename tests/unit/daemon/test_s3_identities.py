"""Keys of the API as identities of the S3 server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from windfall.aws_api.protocol.keys import Key, Role
from windfall.daemon.s3_identities import (
    identity_names,
    policies,
    secret_of,
    server_configuration,
    session_secret,
)
from windfall.daemon.s3_secrets import ensure_secrets
from windfall.jobs.storage import Grant

KEY = Key("WNDFONE", "secret one", Role.SUBMIT, "vision", None, 0)
TENANTS = {
    "default": [Grant("s3://", write=True, but_not=("s3://theirs",))],
    "vision": [Grant("s3://theirs", write=True), Grant("s3://data/in"), Grant("file:///srv", write=True)],
}


def identities(tmp_path, *keys, before=()):
    text = server_configuration(
        keys, TENANTS, ensure_secrets(tmp_path / "secrets.json"), before=before, key_service="http://x"
    )
    return {identity["name"]: identity for identity in json.loads(text)["identities"]}, text


def test_a_key_may_do_what_belongs_to_its_tenant(tmp_path):
    found, text = identities(tmp_path, KEY, replace(KEY, access_key_id="WNDFREAD", role=Role.READ))
    reads = ["Read:theirs", "List:theirs", "Read:data/in", "Read:data/in/*", "List:data/in", "List:data/in/*"]
    assert sorted(found["WNDFONE"]["actions"]) == sorted([*reads, "Write:theirs", "Tagging:theirs"])
    assert sorted(found["WNDFREAD"]["actions"]) == sorted(reads)
    assert secret_of(text, "WNDFONE") == "secret one"
    assert secret_of(text, "WNDFTWO") is None


def test_where_something_is_left_out_it_is_by_a_policy_the_server_was_started_with(tmp_path):
    ours = replace(KEY, tenant="default")
    found, text = identities(tmp_path, ours, replace(ours, access_key_id="WNDFREAD", role=Role.READ))
    used = {name for identity in found.values() for name in identity["policyNames"]}
    assert used == set(policies(TENANTS)) == {policy["name"] for policy in json.loads(text)["policies"]}
    assert len(used) == 2
    assert found["WNDFONE"]["actions"] == []


def test_a_tenant_without_storage_and_a_name_with_a_star_get_nothing(tmp_path):
    found, _ = identities(tmp_path, replace(KEY, tenant="unknown"))
    assert found["WNDFONE"]["actions"] == ["Read:nothing-is-granted"]
    text = server_configuration(
        [KEY],
        {"vision": [Grant("s3://a*")]},
        ensure_secrets(tmp_path / "secrets.json"),
        key_service="http://x",
    )
    assert "a*" not in text


def test_a_key_that_is_revoked_or_gone_stays_listed_without_credentials(tmp_path):
    found, text = identities(tmp_path, replace(KEY, revoked_at=5), before=["WNDFGONE", "windfall"])
    assert found["WNDFONE"]["credentials"] == found["WNDFGONE"]["credentials"] == []
    assert "secret one" not in text
    assert set(identity_names(text)) == {"windfall", "windfall-agents", "WNDFONE", "WNDFGONE"}
    assert identity_names("nonsense") == identity_names("") == []


def test_a_key_with_a_session_token_has_no_s3(tmp_path):
    assert identities(tmp_path, replace(KEY, session_token="t"))[0]["WNDFONE"]["credentials"] == []


@pytest.mark.parametrize("token", ["", "no token", "a.b.c", "a.W10.c", "a.eyJ4IjoxfQ.c", "a.MQ.c"])
def test_a_token_that_is_none_of_the_servers_has_no_secret(token):
    assert session_secret(token, "c2lnbmluZyBrZXk=") is None


def test_the_secret_of_a_session_depends_on_the_servers_own():
    # {"sid":"one"}; the rule is SeaweedFS's, and tests/acceptance/test_job_s3_clients.py holds it against the server.
    token = "head.eyJzaWQiOiJvbmUifQ.mark"
    found = {session_secret(token, key) for key in ("c2lnbmluZyBrZXk=", "YW5vdGhlciBrZXk=")}
    assert None not in found
    assert len(found) == 2
