"""The wheel holds what runs from the tree: every file of the package, SQL included, and no test."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

import windfall
from tests.tidy.tree import PACKAGE, ROOT, files_under


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    here = {f"windfall/{file.relative_to(PACKAGE).as_posix()}" for file in files_under(PACKAGE)}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == here


def test_the_wheel_knows_its_version_licence_and_program(wheel):
    folder = f"windfall_batch-{windfall.__version__}.dist-info"
    assert "windfall = windfall.cli.main:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert "License-Expression: Apache-2.0" in wheel.read(f"{folder}/METADATA").decode()
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()
