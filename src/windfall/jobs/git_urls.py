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


def without_secrets(text: str) -> str:
    """The text with every password or token in an address of it replaced by `***`."""
    return _AFTER_PATH.sub(rf"\g<1>{HIDDEN}", _USER_INFO.sub(_hidden, text))


def _hidden(found: re.Match[str]) -> str:
    scheme, user = found[1], found[2]
    if scheme.lower() not in _WITH_NAMES:
        return f"{scheme}://{HIDDEN}@"
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{f':{HIDDEN}' if colon else ''}@"
