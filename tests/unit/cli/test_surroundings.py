"""What `windfall run` takes along of a shell, and what it leaves there."""

from __future__ import annotations

import pytest

from windfall.cli.surroundings import (
    ExpectedJobUser,
    cannot_enter,
    cannot_write,
    directories_to_check,
    take_along,
)

SHELL = {
    "PATH": "/home/me/venv/bin:/usr/bin",
    "VIRTUAL_ENV": "/home/me/venv",
    "HOME": "/home/me",
    "USER": "me",
    "LOGNAME": "me",
    "LANG": "de_CH.UTF-8",
    "LC_TIME": "de_CH.UTF-8",
    "TZ": "Europe/Zurich",
    "HF_HOME": "/data/hf",
    "TORCH_HOME": "/data/torch",
}
ME = ExpectedJobUser("me", "host", frozenset({"/home/me", "/home/me/venv", "/work"}), frozenset({"/work"}))
NOBODY = ExpectedJobUser("nobody", "host", frozenset({"/work"}))


def test_what_the_user_sees_is_taken_along():
    assert dict(take_along(SHELL, ME).variables) == {**SHELL, "PYTHONUNBUFFERED": "1"}
    assert take_along(SHELL, ME).remarks == ()


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_PROFILE",
        "GITHUB_TOKEN",
        "PIP_INDEX_URL",
        "MY_OWN",
    ],
)
def test_what_is_not_on_the_list_stays(name):
    taken = take_along({**SHELL, name: "very secret"}, ME)
    assert "very secret" not in repr(taken)
    assert name not in taken.variables


def test_a_login_that_stays_is_mentioned_with_what_to_do():
    (told,) = take_along({**SHELL, "WANDB_API_KEY": "x"}, ME).remarks
    assert "run `wandb login` once" in told
    (told,) = take_along({**SHELL, "WANDB_API_KEY": "x"}, NOBODY).remarks
    assert "windfall secret set" in told


def test_what_is_not_utf8_stays():
    assert "PATH" not in take_along({"PATH": "/caf\udce9"}, ME).variables


def test_a_proxy_goes_along_unless_it_holds_a_password():
    taken = take_along({"https_proxy": "http://proxy:3128", "http_proxy": "http://me:pass@proxy:1"}, ME)
    assert taken.variables["https_proxy"] == "http://proxy:3128"
    assert "http_proxy" not in taken.variables


def test_a_name_and_a_home_are_those_of_the_jobs_user():
    taken = take_along(SHELL, NOBODY).variables
    assert not {"HOME", "USER", "LOGNAME"} & set(taken)
    assert taken["HF_HOME"] == "/data/hf"


def test_directories_are_asked_about_once():
    assert directories_to_check({**SHELL, "CONDA_PREFIX": "relative"}, "/home/me") == [
        "/home/me",
        "/home/me/venv",
    ]


@pytest.mark.parametrize(
    ("shell", "user", "words"),
    [
        (SHELL, ME, None),
        ({"USER": "me"}, NOBODY, None),
        (SHELL, NOBODY, "run as nobody and cannot enter the environment /home/me/venv"),
        (SHELL, NOBODY, "`windfall keys create --user me`"),
        ({**SHELL, "USER": "root"}, NOBODY, "--job-user NAME"),
    ],
)
def test_what_the_jobs_user_cannot_enter_is_told(shell, user, words):
    told = cannot_enter(shell, "/work", user, "host")
    assert told is None if words is None else words in told


def test_another_machine_is_named():
    assert "on far, another machine," in cannot_enter({}, "/here", ExpectedJobUser("me", "far"), "near")


def test_a_directory_that_cannot_be_written_is_told():
    assert cannot_write("/work", ME) is None
    remark = cannot_write("/work", NOBODY)
    assert remark is not None
    assert remark.startswith(
        "the job runs as nobody, which cannot write to /work: files that it writes there fail"
    )
