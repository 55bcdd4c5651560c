"""The profile that `windfall env --profile` writes: beside what a user has, and never in its place."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import botocore.session
import pytest

CONFIG = b"# mine\r\n[default]\nregion = eu-west-1\n\n[profile work]\n# \xc3\xa9\nrole_arn = x\n"
CREDENTIALS = b"[default]\naws_access_key_id = AKIAMINE\naws_secret_access_key = mine\n"


@pytest.fixture
def aws(daemon, monkeypatch, tmp_path) -> Path:
    """A directory ~/.aws, empty."""
    daemon.answers["Status"] = {"region": "eu-central-1", "s3Url": "http://127.0.0.1:1"}
    folder = tmp_path / "home" / ".aws"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name)
    return folder


@pytest.fixture
def furnished(aws) -> Path:
    aws.mkdir(parents=True)
    (aws / "config").write_bytes(CONFIG)
    (aws / "config").chmod(0o644)
    (aws / "credentials").write_bytes(CREDENTIALS)
    (aws / "credentials").chmod(0o644)
    return aws


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_client_with_the_profile_is_led_here(aws, daemon, windfall):
    ran = windfall("env", "--profile", "windfall")
    assert (ran.code, ran.err) == (0, "")
    assert daemon.key.secret_access_key not in ran.out
    session = botocore.session.Session(profile="windfall")
    for service in ("batch", "logs", "cloudwatch", "iam", "sagemaker", "scheduler", "sts"):
        client = session.create_client(service)
        assert client.meta.endpoint_url == daemon.url, service
        assert client.meta.region_name == "eu-central-1"
    assert session.create_client("s3").meta.endpoint_url == "http://127.0.0.1:1"
    assert "amazonaws.com" in session.create_client("ec2").meta.endpoint_url
    assert session.get_credentials().secret_key == daemon.key.secret_access_key
    assert (mode(aws), mode(aws / "config"), mode(aws / "credentials")) == (0o700, 0o600, 0o600)


def test_what_was_there_stays_byte_for_byte_and_removal_leaves_nothing(furnished, windfall, daemon):
    for _ in range(2):
        assert windfall("env", "--profile", "windfall").code == 0
    assert (furnished / "config").read_bytes().startswith(CONFIG)
    assert (furnished / "credentials").read_bytes().startswith(CREDENTIALS)
    assert (furnished / "config").read_bytes().count(b"[profile windfall]") == 1
    assert (mode(furnished / "config"), mode(furnished / "credentials")) == (0o644, 0o600)
    session = botocore.session.Session()
    assert session.get_credentials().access_key == "AKIAMINE"
    assert "amazonaws.com" in session.create_client("batch").meta.endpoint_url
    assert windfall("env", "--profile", "windfall", "--remove").out == "removed the profile windfall\n"
    assert (furnished / "config").read_bytes() == CONFIG
    assert (furnished / "credentials").read_bytes() == CREDENTIALS
    again = windfall("env", "--profile", "windfall", "--remove")
    assert (again.code, "there is no profile windfall" in again.err) == (0, True)


def test_files_that_were_made_for_it_go_with_it(aws, windfall):
    windfall("env", "--profile", "windfall")
    windfall("env", "--profile", "windfall", "--remove")
    assert list(aws.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "section"),
    [
        ("config", "[profile windfall]"),
        ("config", '[profile "windfall"]'),
        ("config", "[services windfall]"),
        ("credentials", "[ windfall ]"),
    ],
)
def test_a_profile_of_somebody_else_is_not_touched(furnished, windfall, file, section):
    with (furnished / file).open("a") as opened:
        opened.write(f"{section}\nregion = nowhere\n")
    before = {path.name: path.read_bytes() for path in furnished.iterdir()}
    ran = windfall("env", "--profile", "windfall")
    assert ran.code == 1
    assert "did not write; choose another name" in ran.err
    assert {path.name: path.read_bytes() for path in furnished.iterdir()} == before
    assert windfall("env", "--profile", "other").code == 0


def test_a_link_to_a_file_elsewhere_stays_a_link(furnished, windfall, tmp_path):
    (furnished / "config").rename(tmp_path / "dotfile")
    (furnished / "config").symlink_to(tmp_path / "dotfile")
    windfall("env", "--profile", "windfall")
    assert (furnished / "config").is_symlink()
    assert b"[profile windfall]" in (tmp_path / "dotfile").read_bytes()


def test_what_is_not_a_file_is_refused(aws, windfall, monkeypatch):
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    ran = windfall("env", "--profile", "windfall")
    assert (ran.code, "/dev/null is not a file" in ran.err) == (1, True)
    assert not Path(os.devnull).is_file()


def test_a_block_whose_end_is_gone_is_refused(furnished, windfall):
    windfall("env", "--profile", "windfall")
    config = furnished / "config"
    config.write_text(config.read_text(errors="replace").replace("# <<< windfall", "# "))
    before = config.read_bytes()
    ran = windfall("env", "--profile", "windfall", "--remove")
    assert (ran.code, "is missing below" in ran.err) == (1, True)
    assert config.read_bytes() == before


def test_a_key_in_the_environment_wins_over_aws_profile_and_that_is_said(aws, windfall, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
    ran = windfall("env", "--profile", "windfall", "--json")
    assert json.loads(ran.out)["config"] == str(aws / "config")
    assert "wins over AWS_PROFILE" in windfall("env", "--profile", "windfall").err


def test_a_user_of_another_user_s_daemon_has_a_profile_from_a_key_and_an_address(
    aws, daemon, windfall, monkeypatch, tmp_path
):
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path / "nobody-here"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_BATCH", daemon.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", daemon.key.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", daemon.key.secret_access_key)
    ran = windfall("env", "--profile", "gpu-host")
    assert ran.code == 0, ran.err
    for name in ("AWS_ENDPOINT_URL_BATCH", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    session = botocore.session.Session(profile="gpu-host")
    assert session.create_client("logs").meta.endpoint_url == daemon.url
    assert session.get_credentials().secret_key == daemon.key.secret_access_key


def test_without_a_home_directory_that_is_said(aws, daemon, windfall, monkeypatch):
    monkeypatch.setattr(Path, "expanduser", lambda _: (_ for _ in ()).throw(RuntimeError("no home")))
    ran = windfall("env", "--profile", "windfall")
    assert (ran.code, "set HOME" in ran.err) == (1, True)


def test_profiles_that_are_written_at_once_are_all_there(furnished, daemon, windfall):
    from windfall.cli.aws_profile import AwsFiles, AwsProfile, write_profile

    files = AwsFiles.of(os.environ)

    def write(number: int) -> None:
        write_profile(files, AwsProfile(f"p{number}", "us-east-1", {"batch": daemon.url}, "k", "s", None))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))
    found = botocore.session.Session().available_profiles
    assert sorted(found) == sorted(["default", "work", *(f"p{n}" for n in range(16))])


@pytest.mark.parametrize(
    "told",
    [
        {"region": "us-east-1\n[default]\ncredential_process = /tmp/evil"},
        {"region": "eu-west-1", "s3Url": "http://h\n[profile x]\ncredential_process = /tmp/evil"},
        {"region": "eu-west-1", "s3Url": "file:///etc/passwd"},
        {"region": 7},
    ],
)
def test_a_hostile_daemon_writes_no_lines_of_its_own(furnished, daemon, windfall, told):
    daemon.answers["Status"] = told
    for form in ((), ("--profile", "windfall")):
        ran = windfall("env", *form)
        assert (ran.code, ran.out) == (1, "")
        assert "which is not usable; nothing is written" in ran.err
    assert (furnished / "config").read_bytes() == CONFIG
    assert (furnished / "credentials").read_bytes() == CREDENTIALS


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_SESSION_TOKEN"]
)
@pytest.mark.parametrize("rest", ["\n[default]", "\r", " ", "é"])
def test_a_variable_with_a_line_break_is_refused_and_not_shown(
    furnished, daemon, windfall, monkeypatch, tmp_path, name, rest
):
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path / "nobody-here"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_BATCH", daemon.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", daemon.key.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", daemon.key.secret_access_key)
    monkeypatch.setenv(name, f"very-secret{rest}")
    for command in (("env", "--profile", "windfall"), ("jobs",)):
        ran = windfall(*command)
        assert ran.code == 1
        assert f"{name} holds a blank, a line break" in ran.err
        assert "very-secret" not in ran.err
    assert (furnished / "credentials").read_bytes() == CREDENTIALS


@pytest.mark.parametrize("address", ["file:///etc/passwd", "http://h\n[default]", "nonsense", "http://[::1"])
def test_an_address_that_is_none_is_refused(furnished, windfall, monkeypatch, tmp_path, address):
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path / "nobody-here"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_BATCH", address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    ran = windfall("env", "--profile", "windfall")
    assert ran.code == 1
    assert "is not an address" in ran.err
    assert (furnished / "config").read_bytes() == CONFIG
