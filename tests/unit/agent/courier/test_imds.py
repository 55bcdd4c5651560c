"""EC2's instance metadata, request by request."""

from __future__ import annotations

import json

import pytest

from windfall.agent.courier.imds import Facts, MetadataService, Reply

NOTICE = b'{"action": "terminate", "time": "2026-01-01T00:00:00Z", "deadline_at": 1, "why": "x"}'


class Instance:
    def __init__(self) -> None:
        self.notice: bytes | None = None
        self.rebalance: bytes | None = None
        facts = Facts("i-1", "g5.xlarge", "spot", "eu-west-1", lambda: self.notice, lambda: self.rebalance)
        self._service = MetadataService(facts)

    def ask(self, method: str, path: str, now: float = 0.0, **headers: str) -> Reply:
        lower = {name.lower().replace("_", "-"): value for name, value in headers.items()}
        return self._service.answer(method, path, lower, now)

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def token(self, ttl: str, now: float = 0.0, **headers: str) -> Reply:
        return self.ask("PUT", "/latest/api/token", now, X_aws_ec2_metadata_token_ttl_seconds=ttl, **headers)


@pytest.fixture
def instance() -> Instance:
    return Instance()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("instance-id", "i-1"),
        ("instance-type", "g5.xlarge"),
        ("instance-life-cycle", "spot"),
        ("placement/availability-zone", "eu-west-1a"),
        ("placement/availability-zone/", "eu-west-1a"),
        ("placement/region", "eu-west-1"),
        ("placement/", "availability-zone\nregion"),
        ("", "instance-id\ninstance-life-cycle\ninstance-type\nplacement/"),
    ],
)
def test_paths(instance: Instance, path: str, body: str):
    assert instance.get(f"/latest/meta-data/{path}") == Reply(200, body)
    assert instance.get(f"/2021-07-15/meta-data/{path}") == Reply(200, body)


@pytest.mark.parametrize(
    "path",
    [
        "/latest/meta-data/spot/instance-action",
        "/latest/meta-data/spot",
        "/latest/meta-data/spot/termination-time",
        "/latest/meta-data/events/recommendations/rebalance",
        "/latest/meta-data/iam/security-credentials/",
        "/latest/meta-data/instance-id/deeper",
        "/latest/user-data",
        "/1999-01-01/meta-data",
    ],
)
def test_what_is_not_so_is_not_there(instance: Instance, path: str):
    assert instance.get(path).status == 404


def test_listings_of_the_top(instance: Instance):
    assert "latest" in instance.get("/").body.split("\n")
    assert instance.get("/latest").body == "dynamic/\nmeta-data/"
    document = json.loads(instance.get("/latest/dynamic/instance-identity/document").body)
    assert (document["instanceId"], document["region"]) == ("i-1", "eu-west-1")


def test_the_notice_and_the_recommendation_appear(instance: Instance):
    instance.notice, instance.rebalance = NOTICE, b'{"noticeTime": "2026-01-01T00:00:00Z"}'
    action = instance.get("/latest/meta-data/spot/instance-action")
    assert json.loads(action.body) == {"action": "terminate", "time": "2026-01-01T00:00:00Z"}
    assert instance.get("/latest/meta-data/spot/termination-time").body == "2026-01-01T00:00:00Z"
    assert instance.get("/latest/meta-data/spot/").body == "instance-action\ntermination-time"
    rebalance = instance.get("/latest/meta-data/events/recommendations/rebalance")
    assert json.loads(rebalance.body) == {"noticeTime": "2026-01-01T00:00:00Z"}
    instance.notice = b"torn"
    assert instance.get("/latest/meta-data/spot/instance-action").status == 404


def test_tokens_are_good_until_they_expire(instance: Instance):
    given = instance.token("60", now=100.0)
    assert given.status == 200
    assert given.headers == (("x-aws-ec2-metadata-token-ttl-seconds", "60"),)
    path = "/latest/meta-data/instance-id"
    assert instance.ask("GET", path, 159.0, X_aws_ec2_metadata_token=given.body) == Reply(200, "i-1")
    assert instance.ask("GET", path, 160.0, X_aws_ec2_metadata_token=given.body).status == 401
    assert instance.ask("GET", path, 0.0, X_aws_ec2_metadata_token="made-up").status == 401
    assert instance.ask("GET", path, 0.0).status == 200, "the first version needs none"
    other = Instance()
    assert other.get(path, X_aws_ec2_metadata_token=given.body).status == 401, "a token is its instance's own"


@pytest.mark.parametrize("ttl", ["", "0", "21601", "-5", "abc", "1.5", "²"])
def test_a_token_needs_a_sensible_life(instance: Instance, ttl: str):
    assert instance.token(ttl).status == 400
    assert instance.ask("PUT", "/latest/api/token").status == 400


def test_other_refusals(instance: Instance):
    assert instance.token("60", X_Forwarded_For="1.2.3.4").status == 403
    assert (
        instance.ask("PUT", "/2021-07-15/api/token", X_aws_ec2_metadata_token_ttl_seconds="60").status == 403
    )
    assert instance.ask("PUT", "/latest/meta-data/instance-id").status == 404
    assert instance.ask("POST", "/latest/meta-data/instance-id").status == 405
    assert instance.ask("HEAD", "/latest/meta-data/instance-id").status == 200
