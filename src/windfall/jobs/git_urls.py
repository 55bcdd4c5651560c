"""How the address of a Git repository is shown: never with the password or token that it may carry.

Decides what in a text is a secret of an address. Must not know where the text goes.
"""

from __future__ import annotations

import re

HIDDEN = "***"
#: What stands before the host. In an address of ssh it is a user's name, unless a password follows.
_USER_INFO = re.compile(r"\b([a-z][a-z0-9+.-]*)://([^/\s'\"]*)@", re.IGNORECASE)
#: What follows a question mark or a hash: some servers take tokens there.
_AFTER_PATH = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s'\"?#]*[?#])[^\s'\"@]+", re.IGNORECASE)
_WITH_NAMES = frozenset({"ssh", "git+ssh", "ssh+git"})
#: What stands alone before the host is a user's name, unless it begins or is as long as tokens are.
_LIKE_TOKEN = re.compile(r"(?:gh[a-z]_|github_pat_|gl[a-z]{2,6}-|ATBB|AT[AC]TT).*|.{32,}", re.DOTALL)


def without_secrets(text: str) -> str:
    """The text with every password or token in an address of it replaced by `***`."""
    return _AFTER_PATH.sub(rf"\g<1>{HIDDEN}", _USER_INFO.sub(_hidden, text))


def carries_secret(url: str) -> bool:
    """Whether an address has a password in it, or what looks like a token."""
    if _AFTER_PATH.search(url):
        return True
    match = _USER_INFO.match(url)
    return match is not None and (":" in match[2] or _LIKE_TOKEN.fullmatch(match[2]) is not None)


def _hidden(match: re.Match[str]) -> str:
    scheme, user = match[1], match[2]
    if scheme.lower() not in _WITH_NAMES:
        return f"{scheme}://{HIDDEN}@"
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{f':{HIDDEN}' if colon else ''}@"
