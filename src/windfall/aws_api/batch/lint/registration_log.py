"""Logs what the rules find when a definition is registered.

Not in the definition's tags: tools that compare what they sent with what they get back would see a drift.
"""

from __future__ import annotations

import logging

from windfall.aws_api.batch.documents import read_document
from windfall.aws_api.batch.lint.checking import lint
from windfall.aws_api.batch.lint.context import as_served_here
from windfall.aws_api.batch.lint.findings import Severity
from windfall.capacity.environments import ComputeEnvironment
from windfall.jobs.definitions import JobDefinition

log = logging.getLogger(__name__)


def log_findings(definition: JobDefinition, environments: list[ComputeEnvironment]) -> None:
    """Log what is likely to go wrong with a definition that has just been registered; hints are left out."""
    document = {
        **read_document(definition.document),
        "jobDefinitionName": definition.name,
        "revision": definition.revision,
        "tags": dict(definition.tags),
    }
    around = [
        as_served_here(
            {**read_document(environment.document), "computeEnvironmentName": environment.name},
            environment.engine,
        )
        for environment in environments
    ]
    for finding in lint([document], around):
        if finding.rule.severity is Severity.HINT or not finding.subject.startswith("definition"):
            continue
        log.warning("%s: %s %s; %s", finding.subject, finding.rule.code, finding.seen, finding.remedy)
