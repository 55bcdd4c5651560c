"""Reads documents from files: what the aws command line takes as --cli-input-json, or a list or answer of them.

Decides which operation a document is for and checks it by botocore's own model of that operation, so that the rules can
rely on its shape. Must not open files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windfall.aws_api.batch.lint.checking import is_definition, is_environment
from windfall.aws_api.protocol.errors import ApiError, ValidationError
from windfall.aws_api.protocol.operations import load_service_model, parse_object
from windfall.aws_api.protocol.validation import ShapeCompiler

#: Members of the answers of Describe... that hold documents.
_LISTS = ("jobDefinitions", "computeEnvironments")
#: What the API adds to a document; requests do not have it.
_ANSWERED = (
    "jobDefinitionArn",
    "revision",
    "status",
    "containerOrchestrationType",
    "computeEnvironmentArn",
    "ecsClusterArn",
    "statusReason",
    "uuid",
)


class BadDocument(Exception):
    """The text is not a document of AWS Batch; says what is wrong with it."""


def read_documents(text: bytes) -> list[dict[str, Any]]:
    """The job definitions and compute environments in a text, or BadDocument."""
    try:
        whole = parse_object(text)
    except ApiError as error:
        raise BadDocument(error.message.replace("The request body", "it")) from None
    documents = list(_documents(whole))
    for document in documents:
        _check(document)
    return documents


def _documents(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if is_definition(whole) or is_environment(whole):
        yield whole
        return
    listed = [document for name in _LISTS if isinstance(whole.get(name), list) for document in whole[name]]
    if not listed:
        raise BadDocument(
            "it is neither a job definition (jobDefinitionName) nor a compute environment (computeEnvironmentName)"
        )
    for document in listed:
        if not isinstance(document, dict) or not (is_definition(document) or is_environment(document)):
            raise BadDocument("its list holds something that is neither a definition nor an environment")
        yield document


def _check(document: dict[str, Any]) -> None:
    operation = "RegisterJobDefinition" if is_definition(document) else "CreateComputeEnvironment"
    shape = load_service_model("batch").operation_model(operation).input_shape
    request = {name: value for name, value in document.items() if name not in _ANSWERED}
    violations: list[str] = []
    try:
        ShapeCompiler().compile(shape)(request, None, violations)
        if violations:
            raise ValidationError(violations)
    except ApiError as error:
        raise BadDocument(f"{operation} would refuse it: {error.message}") from None
