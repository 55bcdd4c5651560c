"""What `windfall env` prints for each shell: set variables, keep what they had, and bring that back.

What a variable had is kept by the shell itself under another name, so that no secret of the user's is printed and a
script that was printed in one shell is right in another. Must not know which variables there are or what they mean.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from windfall.objects.credentials import KEPT

SHELLS = ("sh", "fish", "powershell")
#: Set while the variables are those of `windfall env`.
MARKER = "_WINDFALL_ENV"
_KNOWN = {"fish": "fish", "pwsh": "powershell", "powershell": "powershell"}


def calling_shell() -> str:
    """The shell that asks: the process that started this one. SHELL names only the one that the user logs in with."""
    try:
        name = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    except OSError:
        return "sh"
    return _KNOWN.get(name, "sh")


def how_to_use(shell: str, command: str) -> str:
    """The line that lets a shell carry out what a command prints."""
    if shell == "fish":
        return f"{command} | source"
    if shell == "powershell":
        return f"{command} | Out-String | Invoke-Expression"
    return f'eval "$({command})"'


def setting(shell: str, names: Sequence[str], values: Mapping[str, str], absent: Sequence[str]) -> list[str]:
    """Lines that keep what variables of these names have now, set some of them, and take the absent ones away.

    They also work when a shell joins them to one line, as `eval $(...)` without quotes does.
    """
    if shell == "fish":
        keep = (
            f"if not set -q {MARKER}; for name in {' '.join(names)};"
            f" set -q $name; and set -gx {KEPT}$name $$name; end; end;"
        )
        return [
            keep,
            *(f"set -gx {name} {_fish(value)};" for name, value in values.items()),
            *(f"set -e -g {name};" for name in absent),
            f"set -gx {MARKER} 1;",
        ]
    if shell == "powershell":
        keep = (
            f'if (-not $env:{MARKER}) {{ foreach ($name in {_listed(names)}) {{ if (Test-Path "env:$name")'
            f' {{ Set-Item "env:{KEPT}$name" (Get-Item "env:$name").Value }} }} }};'
        )
        return [
            keep,
            *(f"$env:{name} = {_powershell(value)};" for name, value in values.items()),
            *(f"Remove-Item -ErrorAction Ignore env:{name};" for name in absent),
            f"$env:{MARKER} = '1';",
        ]
    keep = (
        f'if [ -z "${{{MARKER}+set}}" ]; then for _windfall in {" ".join(names)}; do'
        f' eval "[ -z \\"\\${{$_windfall+set}}\\" ] || export {KEPT}$_windfall=\\"\\$$_windfall\\""; done;'
        " unset _windfall; fi;"
    )
    return [
        keep,
        *(f"unset {name};" for name in absent),
        *(f"export {name}={shlex.quote(value)}" for name, value in values.items()),
        f"export {MARKER}=1",
    ]


def unsetting(shell: str, names: Sequence[str], key_variable: str, key_start: str) -> str:
    """A line that gives the variables what they had before, and changes nothing where they are the user's own.

    A key that begins so was set by an earlier version, which left no marker.
    """
    if shell == "fish":
        line = (
            f'if set -q {MARKER}; or string match -q "{key_start}*" -- "${key_variable}";'
            f" for name in {' '.join(names)}; set -e -g $name; set -l kept {KEPT}$name;"
            " if set -q $kept; set -gx $name $$kept; set -e -g $kept; end; end;"
            f" set -e -g {MARKER}; end;"
        )
    elif shell == "powershell":
        line = (
            f"if ($env:{MARKER} -or $env:{key_variable} -like '{key_start}*') {{ foreach ($name in {_listed(names)})"
            f' {{ if (Test-Path "env:{KEPT}$name") {{ Set-Item "env:$name" (Get-Item "env:{KEPT}$name").Value;'
            f' Remove-Item "env:{KEPT}$name" }} else {{ Remove-Item -ErrorAction Ignore "env:$name" }} }};'
            f" Remove-Item -ErrorAction Ignore env:{MARKER} }};"
        )
    else:
        restored = (
            f'if [ -n \\"\\${{{KEPT}$_windfall+set}}\\" ]; then export $_windfall=\\"\\${KEPT}$_windfall\\";'
            f" unset {KEPT}$_windfall; else unset $_windfall; fi"
        )
        line = (
            f'case "${{{MARKER}-}}${{{key_variable}-}}" in 1*|{key_start}*)'
            f' for _windfall in {" ".join(names)}; do eval "{restored}"; done;'
            f" unset _windfall {MARKER};; esac;"
        )
    return line


def _fish(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _powershell(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def _listed(names: Sequence[str]) -> str:
    return ",".join(map(_powershell, names))
