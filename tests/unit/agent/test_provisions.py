"""What the daemon provides is in private files, as long as an attempt needs it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from windfall.agent.messages import Provide, Start, encode
from windfall.agent.object_access import object_environment
from windfall.agent.provisions import Provisions, needed_secrets
from windfall.agent.secrets import git_credential, secret_values
from windfall.agent.settings import AgentSettings
from windfall.jobs.containers import ContainerOptions, ContainerRun, Secret
from windfall.jobs.staging import GitSource, Staging


def a_start(token: str, *secrets: str) -> Start:
    named = tuple(Secret(name.upper(), name) for name in secrets)
    return Start(token, token, ["true"], {}, None, "", 1.0, 128, [], secrets=named)


class Agent:
    """Provisions below a directory, with the attempts that were not forgotten."""

    def __init__(self, root: Path, *, provided: bool = True) -> None:
        self.known: set[str] = set()
        self.secrets, self.objects = root / "secrets", root / "objects.json"
        self.settings = AgentSettings(
            str(root / "agent"),
            str(root / "attempts"),
            objects_file=str(self.objects),
            secrets_directory=str(self.secrets),
            provided=provided,
        )
        self.provisions = self.again()

    def again(self) -> Provisions:
        self.provisions = Provisions(self.settings, self.known)
        return self.provisions

    def start(self, token: str, *secrets: str) -> None:
        self.known.add(token)
        self.provisions.note_start(a_start(token, *secrets))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_what_is_provided_is_found_by_those_that_read_such_files_and_by_no_other_user(agent: Agent):
    agent.provisions.take(
        Provide({"AWS_REGION": "x"}, {"token": "abc", "other/token": "theirs", "git@example.com": "key"})
    )
    assert secret_values(agent.settings.secrets_directory, [Secret("A", "token")]) == {"A": "abc"}
    assert secret_values(agent.settings.secrets_directory, [Secret("A", "other/token")]) == {"A": "theirs"}
    assert git_credential(agent.settings.secrets_directory, "git@example.com") == "key"
    assert object_environment(agent.settings.objects_file, {}) == {"AWS_REGION": "x"}
    for path in (agent.objects, *agent.secrets.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert not list(agent.secrets.rglob("*.new"))


def test_a_secret_goes_with_the_last_attempt_that_needs_it(agent: Agent):
    agent.provisions.take(Provide(None, {"one": "1", "two": "2"}))
    agent.start("a#1", "one", "two")
    agent.start("b#1", "two")
    agent.provisions.forget(["a#1", "unknown#1"])
    assert agent.provisions.names == ["two"]
    agent.provisions.forget(["b#1"])
    assert [path.name for path in agent.secrets.iterdir()] == []


def test_a_secret_for_a_start_that_is_on_its_way_stays_until_the_connection_is_gone(agent: Agent):
    agent.provisions.take(Provide(None, {"one": "1"}))
    agent.provisions.forget(["other#1"])
    assert agent.provisions.names == ["one"]
    agent.provisions.begin_connection()
    assert agent.provisions.names == []
    assert not (agent.secrets / "one").exists()


def test_the_next_agent_keeps_what_attempts_that_go_on_may_need(agent: Agent):
    agent.provisions.take(Provide(None, {"one": "1", "other/two": "2"}))
    agent.start("a#1", "one")
    agent.again().begin_connection()
    assert agent.provisions.names == ["one", "other/two"]
    agent.provisions.forget(["a#1"])
    assert agent.provisions.names == []


def test_a_secret_that_is_withdrawn_is_removed_at_once(agent: Agent):
    agent.provisions.take(Provide(None, {"one": "1"}))
    agent.start("a#1", "one")
    agent.provisions.take(Provide(withdrawn=["one", "never-there"]))
    assert agent.provisions.names == []
    assert not (agent.secrets / "one").exists()


@pytest.mark.parametrize("name", ["../objects.json", "a/../../x", "/etc/passwd", ".hidden", "", "@x"])
def test_what_cannot_be_the_name_of_a_secret_is_never_a_path(agent: Agent, name: str):
    agent.objects.write_text("{}")
    agent.provisions.take(Provide(None, {name: "evil"}))
    agent.provisions.take(Provide(withdrawn=[name]))
    assert agent.provisions.names == []
    assert agent.objects.read_text() == "{}"
    assert not agent.secrets.exists()


def test_an_agent_that_reads_the_daemons_own_files_lets_them_be(tmp_path: Path):
    agent = Agent(tmp_path, provided=False)
    agent.secrets.mkdir()
    (agent.secrets / "one").write_text("the daemon's")
    agent.provisions.take(Provide({"A": "b"}, {"one": "1", "two": "2"}, ["one"]))
    agent.again().begin_connection()
    assert (agent.secrets / "one").read_text() == "the daemon's"
    assert not agent.objects.exists()


def test_what_cannot_be_written_is_said_without_the_value(agent: Agent, capfd: pytest.CaptureFixture[str]):
    agent.secrets.write_text("a file in the way")
    agent.provisions.take(Provide(None, {"one": "s3cr3t"}))
    said = capfd.readouterr().err
    assert f"what the daemon provides cannot be written to {agent.secrets}: File exists" in said
    assert "s3cr3t" not in said
    assert agent.provisions.names == []


def test_no_text_of_the_message_but_the_wires_has_a_value():
    provide = Provide({"AWS_SECRET_ACCESS_KEY": "s3cr3t"}, {"one": "s3cr3t"})
    assert "s3cr3t" not in f"{provide!r} {provide}"
    assert json.loads(encode([provide]))["secrets"] == {"one": "s3cr3t"}


def test_an_attempt_needs_the_secrets_of_its_process_or_container_and_the_credential_of_its_code():
    container = ContainerRun("image", None, (), ContainerOptions(secrets=(Secret("A", "t/boxed"),)))
    staging = Staging(git=GitSource("https://example.com/x.git", "main"))
    start = Start("t", "t", [], {}, None, "", 1.0, 1, [], container=container, staging=staging, tenant="t")
    assert needed_secrets(start) == {"t/boxed", "t/git@example.com"}
    assert needed_secrets(a_start("t", "one", "../bad")) == {"one"}
