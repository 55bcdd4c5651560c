"""What requests of Windfall's own operations say, checked: ids, times, numbers; for `windfall exec` also commands.

Decides which values can be meant, and the text of each refusal. Must not know any operation's answer.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call

NOTICE_MAX_S = 86_400.0
_COMMAND_BYTES = 1 << 16
_SIZE_MOST = 10_000
_SESSION = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,63}", re.ASCII)


def needed_text(call: Call, name: str) -> str:
    """A text that must be there."""
    value = call.params.get(name)
    if not isinstance(value, str) or not value:
        raise ApiError("Invalid", f"{name} is required (a non-empty string).")
    return value


def optional_text(call: Call, name: str) -> str | None:
    """A text that may be left out."""
    return None if call.params.get(name) is None else needed_text(call, name)


def texts(call: Call, name: str) -> list[str]:
    """A list of texts; empty when it is left out."""
    value = call.params.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ApiError("Invalid", f"{name} must be a list of strings.")
    return value


def text_map(call: Call, name: str) -> dict[str, str]:
    """Texts by name; empty when it is left out."""
    value = call.params.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ApiError("Invalid", f"{name} must be an object whose values are strings.")
    return value


def needed_count(call: Call, name: str) -> int:
    """A number of bytes that must be there."""
    value = call.params.get(name)
    if type(value) is not int or value < 0:
        raise ApiError("Invalid", f"{name} is required (a whole number, 0 or more).")
    return value


def limit_of(call: Call, default: int, most: int) -> int:
    """How many rows are asked for."""
    value = call.params.get("limit", default)
    if type(value) is not int or not 1 <= value <= most:
        raise ApiError("Invalid", f"limit must be a number from 1 to {most}.")
    return value


def since_of(call: Call) -> int:
    """The time from which on something is asked for; 0 when it is left out."""
    value = call.params.get("sinceAt", 0)
    if type(value) is not int:
        raise ApiError("Invalid", "sinceAt must be a time in whole milliseconds since the epoch.")
    return value


def notice_of(call: Call, default_s: float) -> float:
    """How long in advance an interruption is announced."""
    value = call.params.get("noticeS")
    if value is None:
        return default_s
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= NOTICE_MAX_S:
        raise ApiError(
            "Invalid", f"noticeS must be seconds between 0 and {NOTICE_MAX_S:,.0f}, not {value!r}."
        )
    return float(value)


def no_such_job(job_id: str, *, that_ran: bool = False) -> ApiError:
    """The refusal of a job id that names nothing the caller sees."""
    ran = " that has run" if that_ran else ""
    return ApiError("NotFound", f"There is no job {job_id}{ran}; `windfall jobs --all` lists them.", 404)


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
