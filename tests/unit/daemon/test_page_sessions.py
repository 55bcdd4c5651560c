"""Sessions of the page: never more rights than their key, and none of their own making."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from windfall.aws_api.protocol.errors import AccessDeniedError, ApiError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.page_sessions import PageSessions
from windfall.daemon.settings import Settings

HOUR_MS = 3_600_000
KEY = Key("WNDFKEY", "secret", Role.SUBMIT, "red", None, 0, name="ann")


def pages(*keys: Key, leader: tuple[bool, str | None] = (True, "http://here")) -> PageSessions:
    by_id = {key.access_key_id: key for key in keys}
    return PageSessions(Settings(Path("/data")), by_id.get, lambda: HOUR_MS, lambda: leader)


def a_call(operation: str, caller: Caller, **params: object) -> Call:
    return Call("windfall", operation, dict(params), caller, "us-east-1", "request", 2)


HOLDER = Caller.of(KEY)


def created(caller: Caller = HOLDER, **params: object) -> dict[str, object]:
    return asyncio.run(pages(KEY).create(a_call("CreateSession", caller, **params)))


def test_a_session_reads_for_eight_hours_unless_more_is_asked_for():
    answer = created()
    assert (answer["role"], answer["tenant"], answer["expiresAt"]) == ("read", "red", 9 * HOUR_MS)
    assert answer["secretAccessKey"] != KEY.secret_access_key
    assert created(role="submit", hours=1)["expiresAt"] == 2 * HOUR_MS
    assert created()["secretAccessKey"] != answer["secretAccessKey"], "each is another one"


def test_it_has_no_more_rights_than_its_key():
    with pytest.raises(
        AccessDeniedError, match="has the role submit, so its sessions cannot have the role admin"
    ):
        created(role="admin")


def test_a_session_makes_no_session():
    with pytest.raises(AccessDeniedError, match="cannot make another one"):
        created(replace(Caller.of(KEY), ends_at=5))


def test_a_key_that_was_revoked_meanwhile_makes_none():
    with pytest.raises(ApiError) as refused:
        asyncio.run(pages().create(a_call("CreateSession", Caller.of(KEY))))
    assert refused.value.status == 403


@pytest.mark.parametrize(
    "params",
    [{"role": "root"}, {"role": None}, {"hours": 0}, {"hours": 1e9}, {"hours": "8"}, {"hours": True}],
)
def test_what_cannot_be_is_refused_in_plain_words(params: dict[str, object]):
    with pytest.raises(ApiError, match="must be"):
        created(**params)


def test_who_looks_is_told_its_rights_and_which_daemon_answers():
    page = pages(KEY, leader=(False, "http://there"))
    answer = asyncio.run(page.who_am_i(a_call("WhoAmI", Caller.of(KEY))))
    assert (answer["name"], answer["role"], answer["tenant"], answer["seesAll"]) == (
        "ann",
        "submit",
        "red",
        False,
    )
    assert (answer["leads"], answer["leader"], answer["expiresAt"]) == (False, "http://there", None)
    unknown = asyncio.run(pages().who_am_i(a_call("WhoAmI", Caller.of(KEY))))
    assert unknown["name"] is None
