"""The dependency rule, as import-linter checks it from the contracts in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import PACKAGE, ROOT


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Applies the contracts of this repository to the package below a source folder."""
    # The console script lies beside the interpreter; import-linter has no `python -m` form.
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-logo", "--no-cache", "--config", ROOT / "pyproject.toml"],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_dependency_rule_holds():
    outcome = lint_imports(PACKAGE.parent)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


LAYERS = (
    "cli",
    "daemon",
    "usher",
    "aws_api",
    "store",
    "engines",
    "views",
    "agent",
    "objects",
    "forecast",
    "control",
    "scheduling",
    "accounting",
    "advisor",
    "schedules",
    "hosting",
    "deadlines",
    "capacity",
    "jobs",
    "checkpoint",
    "worker",
    "backoff",
)


def a_package(folder: Path) -> Path:
    """A package with every layer and nothing in them, to be broken by one import."""
    for name in ("", *LAYERS):
        (folder / "windfall" / name).mkdir()
        (folder / "windfall" / name / "__init__.py").write_text("")
    return folder


def broken_contracts(folder: Path) -> str:
    """The names of the contracts that the package below a folder breaks."""
    outcome = lint_imports(folder)
    assert outcome.returncode in {0, 1}, outcome.stdout + outcome.stderr
    assert "Contracts" in outcome.stdout, outcome.stdout + outcome.stderr
    return "\n".join(line for line in outcome.stdout.splitlines() if line.endswith("BROKEN"))


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("jobs", "windfall.capacity", "cli > daemon > adapters"),
        ("control", "windfall.store", "cli > daemon > adapters"),
        ("store", "windfall.aws_api", "cli > daemon > adapters"),
        ("engines", "windfall.store", "cli > daemon > adapters"),
        ("views", "windfall.store", "cli > daemon > adapters"),
        ("views", "windfall.aws_api", "cli > daemon > adapters"),
        ("views", "windfall.daemon", "cli > daemon > adapters"),
        ("views", "windfall.agent", "the API, the store and the read side do not know agents"),
        ("store", "windfall.agent", "the API, the store and the read side do not know agents"),
        ("aws_api", "windfall.agent", "the API, the store and the read side do not know agents"),
        ("agent", "windfall.scheduling", "an agent carries out"),
        ("agent", "windfall.checkpoint", "the library in users' jobs"),
        ("checkpoint", "windfall.jobs", "cli > daemon > adapters"),
        ("agent", "windfall.worker", "the library in users' jobs"),
        ("worker", "windfall.jobs", "cli > daemon > adapters"),
        ("engines", "botocore.session", "botocore's models are known at the wire only"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path, module, imported, contract):
    (a_package(tmp_path) / "windfall" / module / "intruder.py").write_text(f"import {imported}\n")
    assert contract in broken_contracts(tmp_path)


def test_allowed_imports_pass(tmp_path):
    (a_package(tmp_path) / "windfall" / "engines" / "local.py").write_text(
        "import windfall.agent, windfall.control\n"
    )
    (tmp_path / "windfall" / "aws_api" / "shapes.py").write_text("import botocore.model\n")
    assert broken_contracts(tmp_path) == ""


def test_a_folder_without_a_layer_is_found(tmp_path):
    (a_package(tmp_path) / "windfall" / "stray").mkdir()
    (tmp_path / "windfall" / "stray" / "__init__.py").write_text("")
    assert "cli > daemon > adapters" in broken_contracts(tmp_path)
