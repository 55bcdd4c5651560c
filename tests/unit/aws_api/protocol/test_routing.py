"""Which operation a request asks for."""

from __future__ import annotations

import pytest

from windfall.aws_api.protocol.errors import ServiceDefinitionError, UnknownOperationError
from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.routing import RestRouter, router_for

BATCH = router_for(load_service_model("batch"))
LOGS = router_for(load_service_model("logs"))


def a_request(method: str, path: str, target: bytes | None = None) -> HttpRequest:
    return HttpRequest(method, path, "", {} if target is None else {b"x-amz-target": target}, b"")


@pytest.mark.parametrize(
    ("method", "path", "operation", "labels"),
    [
        ("POST", "/v1/submitjob", "SubmitJob", {}),
        ("GET", "/v1/tags/arn%3Aaws%2Fx", "ListTagsForResource", {"resourceArn": "arn%3Aaws%2Fx"}),
        (
            "POST",
            "/v1/tags/arn:aws:batch:r:1:job/x",
            "TagResource",
            {"resourceArn": "arn:aws:batch:r:1:job/x"},
        ),
        ("DELETE", "/v1/tags/a", "UntagResource", {"resourceArn": "a"}),
    ],
)
def test_rest_routes(method, path, operation, labels):
    assert BATCH.route(a_request(method, path)) == (operation, labels)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/submitjob"),
        ("POST", "/v1/submitjob/"),
        ("POST", "/"),
        ("GET", "/v1/tags/"),
        ("PUT", "/v1/tags/a"),
    ],
)
def test_what_is_not_served_is_named(method, path):
    with pytest.raises(UnknownOperationError) as caught:
        BATCH.route(a_request(method, path))
    assert f"{method} {path}" in caught.value.message
    assert caught.value.status == 404


def test_target_routes():
    assert LOGS.route(a_request("POST", "/", b"Logs_20140328.GetLogEvents")) == ("GetLogEvents", {})


@pytest.mark.parametrize(
    ("method", "path", "target"),
    [
        ("POST", "/", None),
        ("POST", "/", b"Logs_20140328.Nonsense"),
        ("POST", "/", b"Batch.GetLogEvents"),
        ("POST", "/", b"Logs_20140328.GetLogEvents,Logs_20140328.GetLogEvents"),
        ("GET", "/", b"Logs_20140328.GetLogEvents"),
        ("POST", "/x", b"Logs_20140328.GetLogEvents"),
    ],
)
def test_targets_that_are_not_served(method, path, target):
    with pytest.raises(UnknownOperationError):
        LOGS.route(a_request(method, path, target))


def test_the_more_particular_template_wins():
    router = RestRouter(
        {
            "Any": {"method": "GET", "requestUri": "/groups/{name}"},
            "Member": {"method": "GET", "requestUri": "/groups/{name}/members/{member}"},
            "Greedy": {"method": "GET", "requestUri": "/files/{key+}/meta?x=1"},
        }
    )
    assert router.route(a_request("GET", "/groups/a/members/b")) == ("Member", {"name": "a", "member": "b"})
    assert router.route(a_request("GET", "/groups/a")) == ("Any", {"name": "a"})
    assert router.route(a_request("GET", "/files/a/b/meta")) == ("Greedy", {"key": "a/b"})


def test_every_modelled_operation_is_found_again():
    model = load_service_model("batch")
    for name in model.operation_names:
        http = model.operation_model(name).http
        path = http["requestUri"].replace("{resourceArn}", "arn%3Ax")
        assert BATCH.route(a_request(http["method"], path))[0] == name


def test_a_protocol_that_is_not_served_is_refused_at_start():
    with pytest.raises(ServiceDefinitionError):
        router_for(load_service_model("sts"))
    with pytest.raises(ServiceDefinitionError):
        load_service_model("no-such-service")
