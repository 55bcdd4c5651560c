"""What compiled checks accept, refuse and say."""

from __future__ import annotations

import pytest

from windfall.aws_api.protocol.errors import SerializationError, ValidationError
from windfall.aws_api.protocol.operations import compile_operation, load_service_model
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.serialization import encode_json
from windfall.aws_api.protocol.validation import ShapeCompiler

JOB = {"jobName": "train", "jobQueue": "q", "jobDefinition": "d:1"}


@pytest.fixture(scope="module")
def models():
    return {name: load_service_model(name) for name in ("batch", "logs", "scheduler")}


@pytest.fixture(scope="module")
def read(models):
    """Return a function that reads a request of an operation: a dict as its body, or the body's bytes."""
    compilers = {name: ShapeCompiler(frozenset({"EvaluateOnExit.action"})) for name in models}
    operations = {}

    def call(service, operation, body, labels=None, query="", headers=None):
        key = (service, operation)
        if key not in operations:
            model = models[service].operation_model(operation)
            operations[key] = compile_operation(model, compilers[service], b"application/json")
        content = body if isinstance(body, bytes) else encode_json(body)
        return operations[key].read(HttpRequest("POST", "/", query, headers or {}, content), labels or {})

    return call


def violations(read, *request, **options) -> tuple[str, ...]:
    with pytest.raises(ValidationError) as caught:
        read(*request, **options)
    return caught.value.violations


def test_what_the_model_allows_comes_through_and_what_it_does_not_know_is_dropped(read):
    body = {**JOB, "unheardOf": {"a": [1]}, "tags": {"k": "v"}, "arrayProperties": {"size": 3, "colour": 1}}
    assert read("batch", "SubmitJob", body) == {**JOB, "tags": {"k": "v"}, "arrayProperties": {"size": 3}}


def test_null_counts_as_absent(read):
    assert read("batch", "SubmitJob", {**JOB, "tags": None}) == JOB
    found = violations(read, "batch", "SubmitJob", {**JOB, "jobName": None})
    assert found == ("Value null at 'jobName' failed to satisfy constraint: Member must not be null",)


def test_all_violations_are_reported_at_once(read):
    with pytest.raises(ValidationError) as caught:
        read("logs", "GetLogEvents", {"logGroupName": "a b", "limit": 0})
    assert caught.value.message == (
        "3 validation errors detected: "
        "Value 'a b' at 'logGroupName' failed to satisfy constraint: "
        r"Member must satisfy regular expression pattern: [\.\-_/#A-Za-z0-9]+; "
        "Value '0' at 'limit' failed to satisfy constraint: "
        "Member must have value greater than or equal to 1; "
        "Value null at 'logStreamName' failed to satisfy constraint: Member must not be null"
    )


LOG_EVENTS = [{"timestamp": 1, "message": "a"}, {"timestamp": 2}]


@pytest.mark.parametrize(
    ("operation", "body", "start", "text"),
    [
        (
            "GetLogEvents",
            {"logStreamName": ""},
            "Value '' at 'logStreamName'",
            "Member must have length greater than or equal to 1",
        ),
        (
            "GetLogEvents",
            {"logStreamName": "s", "limit": 10_001},
            "Value '10001' at 'limit'",
            "Member must have value less than or equal to 10000",
        ),
        (
            "DescribeLogStreams",
            {"logGroupName": "g", "orderBy": "Age"},
            "Value 'Age' at 'orderBy'",
            "Member must satisfy enum value set: [LogStreamName, LastEventTime]",
        ),
        (
            "PutLogEvents",
            {"logGroupName": "g", "logStreamName": "s", "logEvents": LOG_EVENTS},
            "Value null at 'logEvents.2.member.message'",
            "Member must not be null",
        ),
        (
            "FilterLogEvents",
            {"logGroupName": "g", "logStreamNames": ["a", None]},
            "Value null at 'logStreamNames.2.member'",
            "Member must not be null",
        ),
        (
            "GetLogEvents",
            {"logStreamName": "nul\0"},
            "Value 'nul\0' at 'logStreamName'",
            "Member must not contain NUL characters",
        ),
    ],
)
def test_messages_of_single_violations(read, operation, body, start, text):
    assert f"{start} failed to satisfy constraint: {text}" in violations(read, "logs", operation, body)


def test_a_long_value_is_shown_in_part(read):
    (text,) = violations(read, "logs", "GetLogEvents", {"logStreamName": "x" * 100_000})
    assert len(text) < 500


def test_a_lenient_enumeration_is_lenient_at_its_place_only(read):
    def submit(action):
        return read("batch", "SubmitJob", {**JOB, "retryStrategy": {"evaluateOnExit": [{"action": action}]}})

    assert submit("rEtRy")["retryStrategy"] == {"evaluateOnExit": [{"action": "rEtRy"}]}
    bad = {**JOB, "dependsOn": [{"jobId": "j", "type": "n_to_n"}]}
    assert "enum value set: [N_TO_N, SEQUENTIAL]" in violations(read, "batch", "SubmitJob", bad)[0]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({**JOB, "jobName": 5}, "Expected a string at 'jobName', got a number."),
        ({**JOB, "tags": []}, "Expected an object at 'tags', got a list."),
        ({**JOB, "dependsOn": "j"}, "Expected a list at 'dependsOn', got a string."),
        (
            {**JOB, "arrayProperties": {"size": "3"}},
            "Expected an integer at 'arrayProperties.size', got a string.",
        ),
        (
            {**JOB, "arrayProperties": {"size": True}},
            "Expected an integer at 'arrayProperties.size', got a boolean.",
        ),
        (
            {**JOB, "arrayProperties": {"size": 2.5}},
            "Expected an integer at 'arrayProperties.size', got a number.",
        ),
        (
            {**JOB, "arrayProperties": {"size": 2**31}},
            "The number at 'arrayProperties.size' does not fit 32 bits.",
        ),
        ({**JOB, "propagateTags": 1}, "Expected a boolean at 'propagateTags', got a number."),
        (b"[1]", "The request body must be a JSON object."),
        (b'"x"', "The request body must be a JSON object."),
        (b"null", "The request body must be a JSON object."),
    ],
)
def test_wrong_types_are_named_with_their_place(read, body, text):
    with pytest.raises(SerializationError) as caught:
        read("batch", "SubmitJob", body)
    assert (caught.value.message, caught.value.code) == (text, "SerializationException")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"jobName":}',
        b'{"jobName":"\xff"}',
        b'{"jobName":"\\ud800"}',
        b'{"jobName":"\\udc00\\ud800"}',
        b'{"jobName":"\x00"}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xef\xbb\xbf{}",
        b'{"a":NaN}',
        b"{}{}",
    ],
)
def test_what_is_not_json_is_refused(read, body):
    with pytest.raises(SerializationError):
        read("batch", "SubmitJob", body)


def test_whole_floats_count_as_integers(read):
    parsed = read("batch", "SubmitJob", {**JOB, "arrayProperties": {"size": 3.0}})
    assert parsed["arrayProperties"] == {"size": 3}
    assert type(parsed["arrayProperties"]["size"]) is int


def test_members_from_path_and_query(read):
    labels = {"resourceArn": "arn%3Aaws%2Fx"}
    untag = read("batch", "UntagResource", b"", labels, "tagKeys=a%20b&other=1&tagKeys=c")
    assert untag == {"resourceArn": "arn:aws/x", "tagKeys": ["a b", "c"]}
    listed = read("scheduler", "ListSchedules", b"", {}, "MaxResults=7&State=ENABLED")
    assert listed == {"MaxResults": 7, "State": "ENABLED"}


def test_the_body_cannot_stand_in_for_path_or_query(read):
    body = {"resourceArn": "from body", "tags": {"k": "v"}}
    tagged = read("batch", "TagResource", body, {"resourceArn": "path"})
    assert tagged == {"resourceArn": "path", "tags": {"k": "v"}}
    assert violations(read, "batch", "UntagResource", {"tagKeys": ["x"]}, {"resourceArn": "path"})


@pytest.mark.parametrize("value", ["seven", "", "1_0", "9" * 5000, "٣"])
def test_a_number_in_the_query_must_be_one(read, value):
    with pytest.raises(SerializationError):
        read(
            "scheduler",
            "ListSchedules",
            b"",
            {},
            "MaxResults=" + "".join(f"%{b:02X}" for b in value.encode()),
        )


@pytest.mark.parametrize("bad", ["%", "%zz", "%ff", "%2"])
def test_bad_percent_encoding_is_refused(read, bad):
    with pytest.raises(SerializationError):
        read("batch", "ListTagsForResource", b"", {"resourceArn": bad})
    with pytest.raises(SerializationError):
        read("batch", "UntagResource", b"", {"resourceArn": "a"}, "tagKeys=" + bad)


def test_timestamps_become_seconds(read):
    body = {"FlexibleTimeWindow": {"Mode": "OFF"}, "ScheduleExpression": "rate(1 hour)"}
    body["Target"] = {"Arn": "arn:aws:x", "RoleArn": "arn:aws:iam::123456789012:role/r"}
    for sent in (1_700_000_000, 1.7e9, "2023-11-14T22:13:20Z", "Tue, 14 Nov 2023 22:13:20 GMT"):
        parsed = read("scheduler", "CreateSchedule", {**body, "StartDate": sent}, {"Name": "n"})
        assert parsed["StartDate"] == 1_700_000_000.0
    for bad in ("soon", True, [], 1e300, "nan"):
        with pytest.raises(SerializationError):
            read("scheduler", "CreateSchedule", {**body, "StartDate": bad}, {"Name": "n"})


def test_every_operation_of_the_served_services_compiles_its_input(models):
    compiler_of = {name: ShapeCompiler() for name in models}
    count = 0
    for name, model in models.items():
        for operation in model.operation_names:
            shape = model.operation_model(operation).input_shape
            if shape is not None:
                compiler_of[name].compile(shape)
                count += 1
    assert count > 150


def test_patterns_that_python_cannot_read_are_few(models):
    from windfall.aws_api.protocol.validation import _compile_pattern

    unread = []
    for model in models.values():
        for name in model.shape_names:
            pattern = model.shape_for(name).metadata.get("pattern")
            if pattern is not None and _compile_pattern(pattern) is None:
                unread.append(name)
    assert unread == ["ResourceType"]
