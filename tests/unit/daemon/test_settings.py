"""Settings: where they come from, what wins, and what a wrong one is told."""

from __future__ import annotations

import os

import pytest

from windfall.daemon.errors import BadSetting
from windfall.daemon.settings import read_settings


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path):
    (tmp_path / "windfall.toml").write_text('port = 1\nregion = "eu-west-1"\ngpus = "none"\n')
    environment = {"WINDFALL_PORT": "2", "WINDFALL_REGION": "eu-west-2", "HOME": "/"}
    settings = read_settings({"data": tmp_path, "port": 3, "gpus": None}, environment)
    assert (settings.port, settings.region, settings.gpus) == (3, "eu-west-2", "none")


def test_defaults(tmp_path):
    settings = read_settings({"data": tmp_path}, {})
    assert (settings.host, settings.retention_days, settings.vcpus) == ("127.0.0.1", 7.0, None)
    assert settings.store_url == f"sqlite:///{tmp_path}/store/windfall.db"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("port", 70_000, "between 0 and 65,535"),
        ("port", "ten", "number"),
        ("gpus", "simulated:0", "simulated:N"),
        ("gpus", "two", "auto, none, simulated:N or recorded"),
        ("gpus", "recorded:/nowhere.json", "cannot be read: No such file"),
        ("account_id", "123", "twelve digits"),
        ("ec2_metadata", "ftp://nowhere", "auto, off or http://HOST:PORT"),
        ("store", "mysql://x", "postgresql://"),
        ("vcpus", 0, "between 1"),
        ("stop_grace_s", -1, "between 0"),
        ("s3_listen", "0.0.0.0", "an IPv4 address of this host"),
        ("s3_listen", "127.0.0.1", "an IPv4 address of this host"),
        ("s3_listen", "host.example.com", "an IPv4 address of this host"),
        ("s3_listen", "10.0.0.5", "add --s3, or leave --s3-listen out"),
        ("job_user", "a;b", "user name"),
        ("job_users", "200000", "none, or FIRST-LAST"),
        ("job_users", "a-b", "none, or FIRST-LAST"),
        ("job_users", "5-9", "range of uids"),
        ("sample_every_s", 0.001, "0 .no samples. or at least 0.1"),
    ],
)
def test_a_wrong_one_is_told_what_it_may_be(tmp_path, name, value, said):
    with pytest.raises(BadSetting, match=said) as raised:
        read_settings({"data": tmp_path, name: value}, {})
    assert name in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as somebody else")
def test_a_job_user_that_this_host_does_not_have(tmp_path):
    with pytest.raises(
        BadSetting, match="job_user must be a user of this host; there is no user 'no-such-user'"
    ):
        read_settings({"data": tmp_path, "job_user": "no-such-user"}, {})


def test_a_file_that_is_wrong(tmp_path):
    file = tmp_path / "windfall.toml"
    file.write_text("prot = 1")
    with pytest.raises(BadSetting, match="unknown settings: prot; the known ones are"):
        read_settings({"data": tmp_path}, {})
    file.write_text("port =")
    with pytest.raises(BadSetting, match="not valid TOML"):
        read_settings({"data": tmp_path}, {})


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "windfall.toml").mkdir()
    with pytest.raises(BadSetting, match=r"windfall\.toml cannot be read: Is a directory"):
        read_settings({"data": tmp_path}, environment={})


def test_a_data_directory_that_cannot_be_entered_is_what_is_named(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.exists", refuse)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(BadSetting, match=f"data directory {tmp_path} cannot be entered.*--data"):
        read_settings({"data": tmp_path}, environment={})


def test_a_variable_that_is_almost_a_setting_is_refused(tmp_path):
    with pytest.raises(BadSetting, match="WINDFALL_PROT is not a setting; did you mean WINDFALL_PORT"):
        read_settings({"data": tmp_path}, {"WINDFALL_PROT": "1"})


def test_variables_of_jobs_and_of_the_command_line_are_no_settings(tmp_path):
    names = (
        *(
            "ATTEMPT",
            "CHECKPOINT_DIR",
            "PROGRESS_FILE",
            "NOTICE_FILE",
            "REBALANCE_FILE",
            "MTBI_S",
            "DEBUG",
            "DATA",
        ),
        *(
            "NODE_ADDRESS",
            "NODE_ADDRESSES",
            "GPU_SHARE",
            "WORKER",
            "STS_URL",
            "SESSION_ROLE",
            "OBJECTS_ROOT",
            "ENV",
        ),
    )
    assert read_settings({"data": tmp_path}, {f"WINDFALL_{name}": "x" for name in names}).port == 8470
