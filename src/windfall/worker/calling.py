"""A warm worker of the kind `module:function`: imports once, calls once per child.

Speaks the same lines as any other worker (docs/warm-workers.md): a task per line on the standard input, an answer
per line on descriptor 3, and what is written to standard output and error in between is the child's log. In a container
these are named pipes in a directory, and opened here. Decides what a
return value, an exit and an exception mean as an exit code. Runs as text given to `python -c` in the user's process, so
it must stay in one file, use the standard library alone, and run on every Python since 3.8.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

_ANSWERS = 3


def exit_code_of(value: Any) -> int:
    """Return the exit code that a function's value stands for: an integer is one, anything else is success."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value & 0xFF
    return 0


def exit_code_of_exit(code: Any) -> int:
    """Return the exit code of `sys.exit(code)`, which says a text before it fails."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def call(function: Callable[[int], Any], index: int) -> int:
    """Call the user's function for one child; what goes wrong is told in the child's log."""
    try:
        return exit_code_of(function(index))
    except SystemExit as leaving:
        return exit_code_of_exit(leaving.code)
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises ends this child, not the worker
        _tell(error, skip=1)
        return 1


def load(target: str) -> Callable[[int], Any]:
    """Import `module:function`; attributes of attributes are found too."""
    module, _, path = target.partition(":")
    part: Any = importlib.import_module(module)
    for name in path.split("."):
        part = getattr(part, name)
    if not callable(part):
        raise TypeError(f"{target} is not a function")
    return part  # type: ignore[no-any-return]  # only a call can show whether it takes an index


def connect(directory: str) -> None:
    """Make the named pipes of a directory the standard input, output and error, and descriptor 3."""
    for name, numbers in (("tasks", (0,)), ("output", (1, 2)), ("answers", (_ANSWERS,))):
        pipe = os.open(f"{directory}/{name}", os.O_RDONLY if name == "tasks" else os.O_WRONLY)
        for number in numbers:
            os.dup2(pipe, number)
        if pipe not in numbers:
            os.close(pipe)


def serve(target: str) -> None:
    """Take tasks until the standard input ends."""
    home = os.getpid()
    # The user's code gets an empty standard input and none of these: a program that it starts must not take a task.
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.dup(_ANSWERS)
    os.close(_ANSWERS)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a file: it is the keeper's pipe
    function: Callable[[int], Any] | None = None
    for line in iter(tasks.readline, b""):
        task = json.loads(line)
        before = _change_environment(task["environment"])
        if function is None:
            function = _load_or_tell(target)
        code = 1 if function is None else call(function, int(task["index"]))
        if os.getpid() != home:
            os._exit(code)  # A fork of the user's that came back from the function: it has no say here.
        _flush()
        _change_environment(before)
        answer = {"exit_code": code, "leave": function is None}
        os.write(answers, json.dumps(answer).encode() + b"\n")
        if function is None:
            return


def _load_or_tell(target: str) -> Callable[[int], Any] | None:
    try:
        return load(target)
    except BaseException as error:  # noqa: BLE001 - the import of the user's module may raise anything
        _tell(error, skip=2)
        return None


def _tell(error: BaseException, skip: int) -> None:
    """Print a traceback without our own first frames, which would only puzzle."""
    place: TracebackType | None = error.__traceback__
    for _ in range(skip):
        if place is not None and place.tb_next is not None:
            place = place.tb_next
    traceback.print_exception(type(error), error, place)


def _change_environment(variables: dict[str, str | None]) -> dict[str, str | None]:
    """Set variables (None removes one) and return what undoes it."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


def _flush() -> None:
    """Bring everything that the child printed on its way, also what C code has in its own buffers."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        connect(each)
    serve(sys.argv[1])
