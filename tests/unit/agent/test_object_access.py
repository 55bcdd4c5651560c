"""The variables that open object storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windfall.agent.object_access import object_environment, shared_variables


def test_the_file_comes_before_the_environment_and_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    path = tmp_path / "objects.json"
    assert object_environment(str(path))["AWS_ACCESS_KEY_ID"] == "environment"
    path.write_text(json.dumps({"AWS_ACCESS_KEY_ID": "file", "SECRET": "not for jobs"}))
    assert object_environment(str(path))["AWS_ACCESS_KEY_ID"] == "file"
    assert shared_variables(str(path)) == {"AWS_ACCESS_KEY_ID": "file", "AWS_REGION": "eu-west-1"}
    path.write_text(json.dumps({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}))
    assert shared_variables(str(path)) == {"AWS_REGION": "eu-west-1"}, "a job has no use for empty ones"


@pytest.mark.parametrize("content", ["no json", "[1]"])
def test_a_file_that_cannot_be_used_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str):
    path = tmp_path / "objects.json"
    path.write_text(content)
    assert "AWS_SECRET_ACCESS_KEY" not in object_environment(str(path))
    assert str(path) in capfd.readouterr().err
