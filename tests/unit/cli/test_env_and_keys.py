"""`windfall env` and `windfall keys`: what a shell evaluates, and where secrets may be seen."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys

import pytest

from windfall.aws_api.protocol.keys import Role, create_key, load_keys


def test_a_shell_gets_all_that_a_client_needs(daemon, windfall):
    daemon.answers["Status"] = {"region": "eu-central-1"}
    ran = windfall("env")
    script = f"export AWS_SESSION_TOKEN=left\n{ran.out}\nenv"
    shell = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    seen = dict(line.partition("=")[::2] for line in shell.stdout.splitlines())
    assert seen["AWS_ENDPOINT_URL_BATCH"] == seen["AWS_ENDPOINT_URL_CLOUDWATCH_LOGS"] == daemon.url
    assert seen["AWS_ACCESS_KEY_ID"] == daemon.key.access_key_id
    assert seen["AWS_SECRET_ACCESS_KEY"] == daemon.key.secret_access_key
    assert seen["AWS_REGION"] == seen["AWS_DEFAULT_REGION"] == "eu-central-1"
    assert seen["WINDFALL_DATA"] == str(daemon.directory)
    assert "AWS_SESSION_TOKEN" not in seen
    assert ran.err == ""


def test_unset_takes_away_what_was_set(daemon, windfall):
    daemon.answers["Status"] = {"region": "us-east-1"}
    script = f"{windfall('env').out}\n{windfall('env', '--unset').out}\nenv"
    shell = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert "AWS_" not in shell.stdout
    assert "WINDFALL_" not in shell.stdout


OWN = {
    "AWS_ACCESS_KEY_ID": "AKIAMINE",
    "AWS_SESSION_TOKEN": "a 'b\"c$d",
    "AWS_ENDPOINT_URL_S3": "https://mine",
}
SHELLS = {
    "sh": ("{0}\n{0}\nenv\n{1}\n{1}\n", "sh"),
    "joined": ('eval $(cat <<"END"\n{0}\nEND\n)\nenv\neval $(cat <<"END"\n{1}\nEND\n)\n', "sh"),
    "strict": ("set -eu\n{0}\nenv\n{1}\n", "sh"),
    "zsh": ("{0}\nenv\n{1}\n", "zsh"),
    "fish": ("{0}\n{0}\nenv\n{1}\n{1}\n", "fish"),
}


@pytest.mark.parametrize("form", SHELLS)
def test_what_the_user_had_is_brought_back(daemon, windfall, form):
    """Also after two times, where a shell joins the lines, and where it stops at unset variables."""
    script, shell = SHELLS[form]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    daemon.answers["Status"] = {"region": "us-east-1"}
    option = ("--shell", "fish" if shell == "fish" else "sh")
    printed = script.format(windfall("env", *option).out, windfall("env", "--unset", *option).out)
    done = subprocess.run(
        [shell, "-c", f"{printed}echo ----\nenv\n"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(daemon.directory), **OWN},
    )
    assert (done.returncode, done.stderr) == (0, "")
    during, after = (
        dict(line.partition("=")[::2] for line in part.splitlines()) for part in done.stdout.split("----")
    )
    assert during["AWS_ACCESS_KEY_ID"] == daemon.key.access_key_id
    assert "AWS_SESSION_TOKEN" not in during
    assert {name: value for name, value in after.items() if "AWS" in name or "WINDFALL" in name} == OWN


@pytest.mark.parametrize("shell", ["sh", "fish", "powershell"])
def test_the_user_s_own_secret_is_never_printed(daemon, windfall, monkeypatch, shell):
    daemon.answers["Status"] = {"region": "us-east-1"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    ran = windfall("env", "--shell", shell)
    assert "very-secret" not in ran.out + ran.err
    assert "--unset" in ran.out.splitlines()[-1]
    assert ran.out.splitlines()[-1].startswith("# ")
    assert "your own AWS key (AKIA...) is replaced" in ran.err
    assert "windfall env --profile windfall" in ran.err


def test_variables_that_are_the_user_s_own_are_not_unset(windfall):
    done = subprocess.run(
        ["sh", "-c", f"{windfall('env', '--unset', '--shell', 'sh').out}\nenv"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", **OWN},
    )
    assert "AWS_ACCESS_KEY_ID=AKIAMINE" in done.stdout


def test_the_form_is_that_of_the_shell_that_asks(daemon, windfall, tmp_path):
    daemon.answers["Status"] = {"region": "us-east-1"}
    asked = "import os; from windfall.cli.shell_forms import calling_shell; print(calling_shell())"
    for name, expected in (("fish", "fish"), ("pwsh", "powershell"), ("bash", "sh"), ("uv", "sh")):
        link = tmp_path / name
        link.symlink_to(sys.executable)
        outer = f"import subprocess, sys; subprocess.run([{sys.executable!r}, '-c', {asked!r}], check=True)"
        done = subprocess.run([str(link), "-c", outer], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--profile", "default"), "would replace your own AWS access"),
        (("--profile", "a b"), "letters, digits"),
        (("--profile", "w]\n[default"), "letters, digits"),
        (("--profile", "w", "--unset"), "excludes --unset"),
        (("--profile", "w", "--shell", "fish"), "excludes --unset and --shell"),
        (("--remove",), "needs --profile"),
    ],
)
def test_options_that_do_not_go_together_are_refused(windfall, arguments, text):
    ran = windfall("env", *arguments)
    assert ran.code == 2
    assert text in ran.err


def test_a_directory_with_odd_characters_is_quoted(tmp_path, windfall):
    from windfall.aws_api.protocol.keys import ensure_keys_file
    from windfall.daemon.directory import DataDirectory

    place = DataDirectory(tmp_path / "a b'$(touch x)")
    place.prepare()
    place.write_address("http://127.0.0.1:9")
    ensure_keys_file(place.keys, now=1)
    ran = windfall("env", "--data", str(place.root))
    shell = subprocess.run(
        ["sh", "-c", f'{ran.out}\nprintf %s "$WINDFALL_DATA"'], capture_output=True, text=True, check=True
    )
    assert shell.stdout == str(place.root)
    assert "no Windfall daemon answers at http://127.0.0.1:9" in ran.err


def test_a_key_can_be_chosen(daemon, windfall):
    daemon.answers["Status"] = {"region": "us-east-1"}
    other = create_key(daemon.directory / "keys.json", role=Role.READ, now=1, with_session_token=True)
    shown = json.loads(windfall("env", "--json", "--key", other.access_key_id).out)
    assert shown["AWS_SECRET_ACCESS_KEY"] == other.secret_access_key
    assert shown["AWS_SESSION_TOKEN"] == other.session_token
    ran = windfall("env", "--key", "nope")
    assert (ran.code, ran.out) == (1, "")
    assert "`windfall keys list`" in ran.err


def test_no_address_yet(tmp_path, windfall):
    ran = windfall("env", "--data", str(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    assert "start one with `windfall up`" in ran.err


def test_a_secret_is_shown_once(daemon, windfall):
    made = windfall("keys", "create", "--role", "submit", "--tenant", "vision")
    key = load_keys(daemon.directory / "keys.json")[-1]
    assert (key.role, key.tenant) == (Role.SUBMIT, "vision")
    assert (
        f"AWS_ACCESS_KEY_ID={key.access_key_id}\nAWS_SECRET_ACCESS_KEY={key.secret_access_key}\n" == made.out
    )
    for listing in (windfall("keys", "list"), windfall("keys", "list", "--json")):
        assert key.access_key_id in listing.out
        assert key.secret_access_key not in listing.out
        assert "vision" in listing.out


def test_a_revoked_key_stays_listed(daemon, windfall):
    key_id = json.loads(windfall("keys", "create", "--json").out)["accessKeyId"]
    assert windfall("keys", "revoke", key_id).code == 0
    listed = {key["accessKeyId"]: key for key in json.loads(windfall("keys", "list", "--json").out)["keys"]}
    assert listed[key_id]["revokedAt"] is not None
    assert listed[daemon.key.access_key_id]["revokedAt"] is None


def test_the_last_admin_key_is_kept(daemon, windfall):
    ran = windfall("keys", "revoke", daemon.key.access_key_id)
    assert ran.code == 1
    assert "the last admin key" in ran.err


def test_keys_of_a_directory_without_any(tmp_path, windfall):
    ran = windfall("keys", "create", "--data", str(tmp_path))
    assert ran.code == 1
    assert list(tmp_path.iterdir()) == []
    bad = windfall("keys", "revoke", "nope", "--data", str(tmp_path))
    assert bad.code == 1


def test_a_key_that_is_mapped_to_an_account_is_listed_with_it(daemon, windfall):
    ran = windfall("keys", "create", "--user", "no-such-account")
    assert (ran.code, ran.out) == (1, "")
    assert "There is no user 'no-such-account'" in ran.err
    assert "USER" not in windfall("keys", "list").out
    name = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"
    made = json.loads(windfall("keys", "create", "--user", name, "--json").out)
    assert made["user"] == name
    listed = windfall("keys", "list").out
    assert "USER" in listed
    assert name in listed
