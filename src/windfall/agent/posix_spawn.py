"""posix_spawn without Python's global lock.

os.posix_spawn holds the lock for the third of a millisecond that a start takes, so the main thread, which
lets go of the lock at every system call, would get it back once per start. Calling libc through ctypes
lets both threads work at once. What is the same for every start (signals, new session, which descriptors
become 0, 1 and 2) is set up once. Must not know attempts.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Sequence

_SETSIGDEF = 0x04
_SETSIGMASK = 0x08
_SETSID = 0x80
#: More than any libc needs for its opaque structures (glibc: 336, 80 and 128 bytes).
_OPAQUE_BYTES = 1024

_libc = ctypes.CDLL(None)
_libc.posix_spawn.argtypes = [
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
]
_libc.posix_spawn.restype = ctypes.c_int


class SpawnRecipe:
    """Everything about a start that does not change; used by one thread."""

    def __init__(self, stdin_fd: int, output_fd: int, default_signals: Iterable[signal.Signals]) -> None:
        self._attributes = ctypes.create_string_buffer(_OPAQUE_BYTES)
        self._actions = ctypes.create_string_buffer(_OPAQUE_BYTES)
        self._pid = ctypes.c_int()
        _check(_libc.posix_spawnattr_init(self._attributes))
        defaults, empty = (
            ctypes.create_string_buffer(_OPAQUE_BYTES),
            ctypes.create_string_buffer(_OPAQUE_BYTES),
        )
        _libc.sigemptyset(defaults)
        _libc.sigemptyset(empty)
        for number in default_signals:
            _libc.sigaddset(defaults, int(number))
        _check(_libc.posix_spawnattr_setsigdefault(self._attributes, defaults))
        _check(_libc.posix_spawnattr_setsigmask(self._attributes, empty))
        flags = ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)
        _check(_libc.posix_spawnattr_setflags(self._attributes, flags))
        _check(_libc.posix_spawn_file_actions_init(self._actions))
        for source, target in ((stdin_fd, 0), (output_fd, 1), (output_fd, 2)):
            _check(_libc.posix_spawn_file_actions_adddup2(self._actions, source, target))
        self._pid_pointer = ctypes.addressof(self._pid)

    def spawn(self, program: str, argv: Sequence[str], environment: dict[str, str]) -> int:
        """Start a process in a session of its own and return its pid; raises OSError as exec would."""
        arguments = [os.fsencode(argument) for argument in argv]
        variables = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
        argument_array = (ctypes.c_char_p * (len(arguments) + 1))(*arguments)
        variable_array = (ctypes.c_char_p * (len(variables) + 1))(*variables)
        error = _libc.posix_spawn(
            self._pid_pointer,
            os.fsencode(program),
            self._actions,
            self._attributes,
            argument_array,
            variable_array,
        )
        if error:
            raise OSError(error, os.strerror(error), program)
        return self._pid.value


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))
