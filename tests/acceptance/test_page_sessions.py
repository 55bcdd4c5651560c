"""`windfall dashboard` and its sessions: less than the key, over with it, and useless to any other address."""

from __future__ import annotations

import pytest

from tests.acceptance.page_client import a_key, ask, fetch, the_session


def test_a_session_reads_and_nothing_more(windfall):
    session = the_session(windfall)
    status, me = ask(windfall, session, "WhoAmI")
    assert (status, me["role"], me["seesAll"], me["expiresAt"]) == (200, "read", True, session["expiresAt"])
    assert ask(windfall, session, "Status")[0] == 200
    status, refusal = ask(windfall, session, "FenceGpu", gpuId="x", reason="y")
    assert (status, refusal["__type"]) == (403, "AccessDeniedException")
    status, refusal = ask(windfall, session, "CreateSession", role="read")
    assert (status, refusal["__type"]) == (403, "AccessDeniedException")
    assert "cannot make another" in refusal["message"]


def test_a_session_never_has_more_than_its_key(fresh):
    windfall = fresh("--gpus", "none")
    reader = a_key(windfall, "--role", "read", "--tenant", "team")
    refused = windfall.windfall(
        "dashboard", "--json", "--role", "submit", check=False, AWS_ACCESS_KEY_ID=reader["AWS_ACCESS_KEY_ID"]
    )
    assert refused.returncode != 0
    assert "cannot have the role submit" in refused.stderr
    me = ask(windfall, the_session(windfall, key=reader), "WhoAmI")[1]
    assert (me["tenant"], me["role"], me["seesAll"]) == ("team", "read", False)
    forged = the_session(windfall, key=reader)
    forged["sessionToken"] = forged["sessionToken"].replace(".read.", ".admin.")
    assert ask(windfall, forged, "WhoAmI")[0] == 403


def test_revoking_the_key_ends_its_sessions_at_once(fresh):
    windfall = fresh("--gpus", "none")
    key = a_key(windfall, "--role", "submit")
    session = the_session(windfall, "--role", "submit", key=key)
    assert ask(windfall, session, "Status")[0] == 200
    windfall.windfall("keys", "revoke", key["AWS_ACCESS_KEY_ID"])
    status, refusal = ask(windfall, session, "Status")
    assert (status, refusal["__type"]) == (403, "UnrecognizedClientException")


def test_a_session_cannot_enter_a_job(windfall):
    session = the_session(windfall, "--role", "admin")
    status, refusal = ask(windfall, session, "StartExec", jobId="a", session="0" * 32)
    assert (status, refusal["__type"]) == (403, "AccessDeniedException")


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:1", "http://localhost:8470", "null", "https://evil.example"]
)
def test_another_address_cannot_use_a_session_even_if_it_had_one(windfall, origin):
    session = the_session(windfall)
    status, refusal = ask(windfall, session, "Status", headers={"origin": origin})
    assert (status, refusal["__type"]) == (403, "AccessDeniedException")
    assert ask(windfall, session, "Status", headers={"origin": windfall.url})[0] == 200


def test_the_page_sets_no_cookie_and_allows_no_other_address(windfall):
    status, headers, _ = fetch(
        windfall, "GET", "/ui/", {"accept": "text/html", "origin": "http://127.0.0.1:1"}
    )
    assert status in (200, 404)  # 404 where the checkout has no page.
    names = {name.lower() for name in headers}
    assert "content-security-policy" in names
    assert not {name for name in names if name.startswith("access-control-")} | ({"set-cookie"} & names)
    status, _, content = fetch(windfall, "GET", "/ui/", {"host": "evil.example"})
    assert status == 421
    assert b"page_hosts" in content
    status, headers, _ = fetch(windfall, "OPTIONS", "/windfall/v1/Status", {"origin": "http://127.0.0.1:1"})
    assert status == 403
    assert not [name for name in headers if name.lower().startswith("access-control-")]
