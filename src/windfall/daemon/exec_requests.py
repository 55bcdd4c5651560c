"""What the requests of `windfall exec` say, checked: commands, positions, sizes of terminals, input.

Decides which values can be meant. Must not know sessions or jobs.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call

_COMMAND_BYTES = 1 << 16
_SIZE_MOST = 10_000
_SESSION = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,63}", re.ASCII)


def wanted_command(call: Call) -> dict[str, Any]:
    """The command and the terminal that StartExec asks for."""
    params = call.params
    session, command = needed_text(call, "session"), params.get("command") or []
    if not _SESSION.fullmatch(session):
        raise ApiError("Invalid", "session must be 32 hexadecimal digits, chosen at random.")
    if not isinstance(command, list) or not all(
        isinstance(word, str) and "\0" not in word for word in command
    ):
        raise ApiError("Invalid", "command must be a list of texts without zero bytes.")
    if command and not command[0]:
        raise ApiError("Invalid", "The first word of command is the program; it must not be empty.")
    shell = params.get("shell") or "/bin/sh"
    if not isinstance(shell, str) or not shell.startswith("/") or "\0" in shell:
        raise ApiError("Invalid", "shell must be an absolute path.")
    try:
        size = sum(len(word.encode()) + 1 for word in (shell, *command))
    except UnicodeEncodeError:
        raise ApiError("Invalid", "command must be UTF-8.") from None
    if size > _COMMAND_BYTES:
        raise ApiError(
            "Invalid", f"A command may have {_COMMAND_BYTES:,} bytes; put it into a file of the job."
        )
    term = params.get("term") or "dumb"
    if not isinstance(term, str) or not _TERM.fullmatch(term):
        term = "dumb"
    return {
        "session": session,
        "command": command,
        "shell": shell,
        "tty": params.get("tty") is True,
        "rows": terminal_size(params.get("rows", 24), "rows"),
        "columns": terminal_size(params.get("columns", 80), "columns"),
        "term": term,
    }


def needed_text(call: Call, name: str) -> str:
    """A text that must be there."""
    value = call.params.get(name)
    if not isinstance(value, str) or not value:
        raise ApiError("Invalid", f"{name} is required (a non-empty string).")
    return value


def needed_count(call: Call, name: str) -> int:
    """A number of bytes that must be there."""
    value = call.params.get(name)
    if type(value) is not int or value < 0:
        raise ApiError("Invalid", f"{name} is required (a whole number, 0 or more).")
    return value


def terminal_size(value: Any, name: str) -> int:
    """The rows or columns of a terminal."""
    if type(value) is not int or not 0 <= value <= _SIZE_MOST:
        raise ApiError("Invalid", f"{name} must be a whole number from 0 to {_SIZE_MOST:,}.")
    return value


def input_bytes(call: Call) -> bytes:
    """The input that WriteExec brings; it may be none."""
    encoded = call.params.get("content", "")
    try:
        if not isinstance(encoded, str):
            raise TypeError
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ApiError("Invalid", "content must be bytes in base64.") from None
