"""`windfall lint` over files, `windfall user-data`: neither needs a daemon."""

from __future__ import annotations

import base64
import email
import json
import os
import subprocess

import pytest
from click.testing import CliRunner

from windfall.cli.errors import BadUsage
from windfall.cli.first_boot import KINDS, render, user_data
from windfall.cli.lint import lint

DEFINITION = {
    "jobDefinitionName": "train",
    "type": "container",
    "containerProperties": {
        "image": "team/train:1.4-cuda12",
        "resourceRequirements": [
            {"type": "VCPU", "value": "4"},
            {"type": "MEMORY", "value": "8192"},
            {"type": "GPU", "value": "1"},
        ],
    },
    "timeout": {"attemptDurationSeconds": 600},
}


@pytest.fixture
def written(tmp_path):
    def write(document, name="train.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


def run(command, *arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)


def test_a_file_with_a_warning_says_what_and_how_and_fails(written):
    ran = run(lint, written(DEFINITION))
    assert ran.return_value == 1
    assert "WL001" in ran.stdout
    assert "sharedMemorySize to 2048" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 definition and 0 environments: 1 warning"
    assert all(line == line.rstrip() for line in ran.stdout.splitlines())


def test_a_dockerfile_is_looked_at_beside_definitions(written):
    text = "# a comment\nFROM nvidia/cuda:12.2.0-runtime-ubuntu22.04\nRUN pip3 install torch\n"
    ran = run(lint, written(text, "Dockerfile"), written(DEFINITION), "--ignore", "WL001")
    assert ran.return_value == 0
    assert "WL201" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 definition and 0 environments, 1 Dockerfile: 1 hint"


def test_a_rule_can_be_left_out(written):
    ran = run(lint, written(DEFINITION), "--ignore", "wl001")
    assert ran.return_value == 0
    assert "nothing found" in ran.stdout


def test_programs_get_one_document(written):
    found = json.loads(run(lint, written(DEFINITION), "--json").stdout)["findings"]
    assert [(one["code"], one["severity"], one["subject"]) for one in found] == [
        ("WL001", "warning", "definition train")
    ]


def test_the_rules_can_be_listed():
    rules = json.loads(run(lint, "--rules", "--json").stdout)["rules"]
    assert rules[0]["code"] == "WL001"
    assert "WL107" in run(lint, "--rules").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name files"),
        (["x.json", "--ignore", "WL999"], "no rule WL999"),
        (["missing/file.json"], "cannot be read"),
    ],
)
def test_a_wrong_command_line_says_what_to_do(arguments, words):
    with pytest.raises(BadUsage, match=words):
        run(lint, *arguments)


def test_a_file_that_is_no_document_is_named(written):
    path = written("{", "broken.json")
    with pytest.raises(BadUsage, match=r"broken\.json: .*not valid JSON"):
        run(lint, path)


@pytest.mark.parametrize("ami", KINDS)
def test_user_data_is_a_script_that_the_shell_can_read_and_never_waits(ami):
    text = render(ami, "4g")
    script = text
    if text.startswith("MIME-Version"):
        (part,) = email.message_from_string(text).get_payload()
        assert part.get_content_type() == "text/x-shellscript"
        script = part.get_payload()
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    commands = [line.strip() for line in script.splitlines() if not line.strip().startswith("#")]
    services = [line for line in commands if line.startswith(("systemctl", "service", "start "))]
    assert set(services) == {"systemctl restart --no-block docker"}
    assert "@" not in script.replace("$@", "")
    assert '"default-shm-size": "4g"' in script


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (None, {"default-runtime": "nvidia", "default-shm-size": "4g"}),
        (
            '{"log-driver": "local", "default-shm-size": "1g"}',
            {"log-driver": "local", "default-runtime": "nvidia"},
        ),
        ('{"default-runtime": "runc", "runtimes": {"own": {"path": "/own"}}}', {"default-runtime": "runc"}),
        ("{ broken", None),
    ],
)
def test_the_first_boot_of_an_ecs_instance_tells_docker_and_the_agent_of_gpus(tmp_path, there, expected):
    for name in ("etc/docker", "etc/ecs", "run", "bin"):
        (tmp_path / name).mkdir(parents=True)
    for program in ("logger", "systemctl", "nvidia-smi"):
        (tmp_path / "bin" / program).write_text(f'#!/bin/sh\necho "{program} $*" >>{tmp_path}/called\n')
        (tmp_path / "bin" / program).chmod(0o755)
    daemon = tmp_path / "etc/docker/daemon.json"
    if there is not None:
        daemon.write_text(there)
    (part,) = email.message_from_string(render("al2023", "4g")).get_payload()
    script = part.get_payload().replace("/etc/", f"{tmp_path}/etc/").replace("/run/", f"{tmp_path}/run/")
    ran = subprocess.run(
        ["bash"],
        input=script,
        text=True,
        capture_output=True,
        env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    config = (tmp_path / "etc/ecs/ecs.config").read_text().splitlines()
    assert config[0] == "ECS_ENABLE_GPU_SUPPORT=true"
    assert 'ECS_INSTANCE_ATTRIBUTES={"GPU": "true"}' in config
    restarted = "systemctl restart --no-block docker" in (tmp_path / "called").read_text()
    assert restarted is (expected is not None)
    if expected is None:
        assert daemon.read_text() == there
        return
    told = json.loads(daemon.read_text())
    assert told | expected == told
    assert told["runtimes"]["nvidia"]["path"] == "/usr/bin/nvidia-container-runtime"
    assert "own" in told["runtimes"] or '"own"' not in (there or "")


def test_user_data_can_be_encoded_for_a_launch_template():
    encoded = run(user_data, "--ami", "al2023", "--base64").stdout.strip()
    assert base64.b64decode(encoded).decode() == render("al2023", "8g")


def test_a_size_that_is_none_is_refused():
    with pytest.raises(BadUsage, match="8g or 512m"):
        run(user_data, "--shm", "much; rm -rf /")
