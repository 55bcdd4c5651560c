"""No password or token of an address is ever shown."""

from __future__ import annotations

import pytest

from windfall.jobs.git_urls import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ghp_secret@host/team/code.git", "https://***@host/team/code.git"),
        ("https://user:s3cret@host/code@main", "https://***@host/code@main"),
        ("HTTPS://user:p@ss@host/code", "HTTPS://***@host/code"),
        ("git cannot fetch 'https://x:y@host/a': no", "git cannot fetch 'https://***@host/a': no"),
        ("ssh://git@host/team/code", "ssh://git@host/team/code"),
        ("ssh://git:word@host/team/code", "ssh://git:***@host/team/code"),
        ("git@host:team/code.git", "git@host:team/code.git"),
        ("https://host/code?private_token=abc@main", "https://host/code?***@main"),
        ("https://host/team/code.git@v1.0", "https://host/team/code.git@v1.0"),
        ("file:///srv/code@main", "file:///srv/code@main"),
        ("", ""),
    ],
)
def test_what_is_shown_of_an_address(text, shown):
    assert without_secrets(text) == shown
