"""What a container runs that is a warm worker."""

from __future__ import annotations

from typing import Any

import pytest

from windfall.agent.container.worker_command import worker_body

CALL = ["-c", "SOURCE", "tasks:work", "/run/windfall"]


def words(body: dict[str, Any], config: dict[str, Any], target: str = "") -> list[str]:
    made = worker_body({"Image": "one", **body}, config, target, "SOURCE" if target else "")
    assert made["Image"] == "one"
    assert len(made["Entrypoint"]) == 1, "what the image says must not be added again"
    return [*made["Entrypoint"], *made["Cmd"]]


@pytest.mark.parametrize(
    ("body", "config", "runs"),
    [
        ({"Cmd": ["serve", "--fast"]}, {"Cmd": ["other"]}, ["serve", "--fast"]),
        ({}, {"Entrypoint": ["/enter"], "Cmd": ["serve"]}, ["/enter", "serve"]),
        ({"Cmd": ["mine"]}, {"Entrypoint": ["/enter"], "Cmd": ["serve"]}, ["/enter", "mine"]),
        ({"Entrypoint": ["/other"]}, {"Entrypoint": ["/enter"], "Cmd": ["serve"]}, ["/other"]),
        ({"Entrypoint": [""], "Cmd": ["mine"]}, {"Entrypoint": ["/enter"]}, ["mine"]),
        ({"Cmd": ["mine"]}, {"Entrypoint": None, "Cmd": None}, ["mine"]),
    ],
)
def test_a_program_gets_its_pipes_from_a_shell(body, config, runs):
    shell, flag, script, name, *rest = words(body, config)
    assert (shell, flag, name) == ("/bin/sh", "-c", "windfall-worker")
    assert script == ('exec "$@" </run/windfall/tasks >/run/windfall/output 2>&1 3>/run/windfall/answers')
    assert rest == runs


@pytest.mark.parametrize(
    ("body", "config", "runs"),
    [
        ({"Cmd": ["/opt/env/bin/python3", "-u", "train.py"]}, {}, ["/opt/env/bin/python3"]),
        ({}, {"Entrypoint": ["python", "serve.py"], "Cmd": ["--all"]}, ["python"]),
        ({"Cmd": ["python3"]}, {"Entrypoint": ["/enter"]}, ["/enter", "python3"]),
        ({}, {"Entrypoint": ["/enter"], "Cmd": ["/bin/bash"]}, ["/enter", "python3"]),
        ({}, {"Cmd": ["bash"]}, ["python3"]),
    ],
)
def test_a_function_is_called_by_the_images_own_python_without_a_shell(body, config, runs):
    assert words(body, config, "tasks:work") == [*runs, *CALL]
