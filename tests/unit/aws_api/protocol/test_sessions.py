"""Sessions: credentials derived from a key, with less than it has, that end by themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.aws_api.protocol.errors import AuthenticationError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Caller
from windfall.aws_api.protocol.sessions import begin_session
from windfall.aws_api.protocol.sigv4 import Signer, sign, verify

NOW = 1_700_000_000.0
IN_AN_HOUR = int((NOW + 3600) * 1000)
NONCE = "0123456789abcdef" * 2
KEY = Key("WNDFKEY", "secret", Role.ADMIN, "default", None, 1, user="ann")


def request_of(session: Key, *, token: str | None = None) -> HttpRequest:
    sent = sign(
        method="POST",
        url="http://h:1/windfall/v1/Status",
        headers={"content-type": "application/json"},
        body=b"{}",
        access_key_id=session.access_key_id,
        secret_access_key=session.secret_access_key,
        session_token=token or session.session_token,
        region="us-east-1",
        service="windfall",
        now=NOW,
    )
    wire = {name.encode(): value.encode() for name, value in sent.items()}
    return HttpRequest("POST", "/windfall/v1/Status", "", wire, b"{}")


def signer_of(session: Key, key: Key | None = KEY, *, now: float = NOW, token: str | None = None) -> Signer:
    return verify(request_of(session, token=token), lambda _: key, now)


def a_session(role: Role = Role.READ, key: Key = KEY) -> Key:
    return begin_session(key, role, IN_AN_HOUR, NONCE)


def test_a_session_signs_as_its_key_with_its_own_role_and_end():
    signer = signer_of(a_session(Role.SUBMIT))
    assert (signer.key.role, signer.key.tenant, signer.key.user) == (Role.SUBMIT, "default", "ann")
    assert signer.ends_at == IN_AN_HOUR
    assert a_session().secret_access_key != KEY.secret_access_key


def test_a_session_is_over_at_its_end_with_its_key_and_when_the_key_has_less_by_then():
    session = a_session(Role.SUBMIT)
    late = replace(session)
    with pytest.raises(AuthenticationError, match="not valid"):
        signer_of(late, now=NOW + 3600)
    with pytest.raises(AuthenticationError, match="not valid"):
        signer_of(session, None)
    with pytest.raises(AuthenticationError, match="not valid"):
        signer_of(session, replace(KEY, role=Role.READ))
    with pytest.raises(AuthenticationError, match="does not match"):
        signer_of(session, replace(KEY, secret_access_key="another"))


@pytest.mark.parametrize(
    "token",
    [
        f"wfs1.admin.{IN_AN_HOUR}.{NONCE}",
        f"wfs1.read.{IN_AN_HOUR + 1}.{NONCE}",
        f"wfs1.read.{IN_AN_HOUR}.{'f' * 32}",
    ],
)
def test_what_a_token_says_cannot_be_changed(token):
    with pytest.raises(AuthenticationError, match="does not match"):
        signer_of(a_session(), token=token)


@pytest.mark.parametrize(
    "token", ["wfs1.", "wfs1.root.1700003600000.x", f"wfs1.read.-1.{NONCE}", "wfs1.\u00b2"]
)
def test_a_token_that_is_none_is_refused(token):
    with pytest.raises(AuthenticationError, match="not valid"):
        signer_of(a_session(), token=token)


def test_a_session_that_may_only_read_sees_what_its_admin_key_sees_and_one_that_may_more_does_not():
    def caller(role: Role, key: Key = KEY) -> Caller:
        return Caller.of_session(begin_session(key, role, IN_AN_HOUR, NONCE), key, IN_AN_HOUR)

    assert caller(Role.READ).sees_all
    assert not caller(Role.SUBMIT).sees_all
    assert caller(Role.ADMIN).sees_all
    assert not caller(Role.READ, replace(KEY, role=Role.SUBMIT)).sees_all
