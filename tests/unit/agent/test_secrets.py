"""Secrets from files: whole ones, members of JSON, and what is said of those that are not there."""

from __future__ import annotations

import pytest

from windfall.agent.errors import refusal
from windfall.agent.secrets import MissingSecret, secret_values
from windfall.jobs.containers import Secret


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "plain").write_text("s3cr3t\n")
    (tmp_path / "db").write_text('{"user": "me", "port": 5432}')
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    return str(tmp_path)


def test_each_secret_has_the_name_that_the_job_wants(directory):
    wanted = (Secret("A", "plain"), Secret("USER", "db", "user"), Secret("PORT", "db", "port"))
    assert secret_values(directory, wanted) == {"A": "s3cr3t\n", "USER": "me", "PORT": "5432"}
    assert secret_values(None, ()) == {}


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (
            Secret("A", "missing"),
            "there is no secret missing here; an admin sets it with: windfall secret set missing",
        ),
        (Secret("A", "../plain"), "there is no secret ../plain here"),
        (Secret("A", "db", "password"), "secret db is not a JSON object with a member password"),
        (Secret("A", "plain", "user"), "secret plain is not a JSON object with a member user"),
        (Secret("A", "bytes"), "secret bytes cannot be read (UnicodeDecodeError)"),
        (Secret("A", "link"), "secret link cannot be read (OSError)"),
    ],
)
def test_what_cannot_be_given_is_said_in_awss_words_without_the_value(directory, secret, text):
    with pytest.raises(MissingSecret) as missing:
        secret_values(directory, (secret,))
    said = str(missing.value)
    assert said.startswith("ResourceInitializationError: unable to pull secrets or registry auth: ")
    assert text in said
    assert "s3cr3t" not in said
    # It has its name already and is not called something else on the way.
    assert refusal(said) == said
    assert refusal("no such file").startswith("CannotStartContainerError: ")


def test_no_directory_has_no_secrets():
    with pytest.raises(MissingSecret, match="there is no secret plain here"):
        secret_values(None, (Secret("A", "plain"),))
