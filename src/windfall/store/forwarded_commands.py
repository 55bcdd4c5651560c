"""Commands and their replies as text, so that one daemon can ask another through the store.

A command goes by the name of its class; a reply by the class of its value; a refusal by the class of its error, so that
the wire says the same whichever daemon was asked. Must not know SQL.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import is_dataclass
from typing import Any, get_args

import msgspec

from windfall.control.events import Command
from windfall.jobs.errors import Rejected
from windfall.store.errors import DamagedRecord
from windfall.store.records import encoded

#: The package whose dataclasses a reply may be of.
_OURS = "windfall."


class _Reply(msgspec.Struct, omit_defaults=True):
    """What is written beside a command when it is done."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    #: `module:class` of a value that is not plain JSON.
    kind: str = ""
    #: The class of the error when the command was refused, its text, and what else it carries.
    error: str = ""
    text: str = ""
    carried: dict[str, Any] = {}


def encoded_command(command: Command) -> tuple[str, str]:
    """The name of a command and its text; Unstorable when SQL cannot hold it."""
    return type(command).__name__, encoded(command)


def decoded_command(name: str, body: str) -> Command:
    """The command again, or DamagedRecord when no command of this version has that name and shape."""
    kind = _commands().get(name)
    if kind is None:
        raise DamagedRecord(f"a daemon sent the command {name[:100]}, which this version does not know")
    try:
        command: Command = msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(
            f"a daemon sent the command {name} in a form of another version: {error}"
        ) from error
    return command


def encoded_reply(reply: Any) -> str:
    """What a command came to, or why it was refused."""
    if isinstance(reply, Rejected):
        carried = {name: value for name, value in vars(reply).items() if isinstance(value, str | int)}
        return encoded(_Reply(error=type(reply).__name__, text=str(reply), carried=carried))
    kind = ""
    if is_dataclass(reply):
        kind = f"{type(reply).__module__}:{type(reply).__qualname__}"
    return encoded(_Reply(msgspec.Raw(encoded(reply).encode()), kind))


def decoded_reply(text: str) -> Any:
    """The value, or the Rejected, that a reply stands for; raises DamagedRecord."""
    try:
        reply = msgspec.json.decode(text, type=_Reply)
        if reply.error:
            return _rejected(reply)
        return msgspec.json.decode(reply.value, type=_kind(reply.kind))
    except (msgspec.MsgspecError, ImportError, AttributeError) as error:
        raise DamagedRecord(f"the leader's reply is of another version: {error}: {text[:200]}") from error


def _rejected(reply: _Reply) -> Rejected:
    """The error as it was raised; one of a class that is not known here is at least a refusal."""
    kind = next(
        (kind_of_error for kind_of_error in _rejections(Rejected) if kind_of_error.__name__ == reply.error),
        Rejected,
    )
    # Not by calling the class: some make their text from other arguments.
    rejected = kind.__new__(kind, reply.text)
    for name, value in reply.carried.items():
        setattr(rejected, name, value)
    return rejected


def _rejections(kind: type[Rejected]) -> list[type[Rejected]]:
    return [kind, *(below for subclass in kind.__subclasses__() for below in _rejections(subclass))]


def _kind(name: str) -> Any:
    if not name:
        return Any
    module, _, qualified = name.partition(":")
    kind = getattr(importlib.import_module(module), qualified) if module.startswith(_OURS) else None
    if not is_dataclass(kind):
        raise AttributeError(f"{name} is not a value of Windfall")
    return kind


@functools.cache
def _commands() -> dict[str, type]:
    return {kind.__name__: kind for kind in _members(Command)}


def _members(union: Any) -> list[type]:
    parts = get_args(union)
    return [member for part in parts for member in _members(part)] if parts else [union]
