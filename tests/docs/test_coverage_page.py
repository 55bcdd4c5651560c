"""docs/aws-coverage.md says what the code does, and its tables name only what AWS has."""

from __future__ import annotations

import pytest

from tests.tidy.tree import ROOT
from windfall.aws_api.coverage import Coverage, coverage_page, coverages, unknown_members

PAGE = ROOT / "docs" / "aws-coverage.md"


def test_the_page_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == coverage_page(), (
        "docs/aws-coverage.md is stale; run `make docs`"
    )


@pytest.mark.parametrize("coverage", coverages(), ids=lambda coverage: coverage.service)
def test_the_tables_name_only_members_that_exist(coverage):
    assert coverage.roles
    assert unknown_members(coverage) == []


def test_a_member_that_does_not_exist_is_found():
    wrong = Coverage("Batch", "batch", {}, {"SubmitJob": ("jobName", "containerOverrides.speed")})
    assert unknown_members(wrong) == ["SubmitJob.containerOverrides.speed"]


def test_every_operation_stands_in_the_page():
    page = coverage_page()
    assert "| SubmitJob | submit |" in page
    assert "`containerProperties.repositoryCredentials`" in page
    assert "| SubmitServiceJob | submit |" in page
    assert "CreateExportTask" in page.split("Not supported yet: ")[1], "of CloudWatch Logs"
