"""What a job wrote, made harmless for a terminal.

A log is another person's text: an escape sequence in it could rename the window, move the cursor over earlier lines or
make some terminals type. Decides which characters reach a terminal; must not know where the text comes from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TextIO

#: Sets colours and weight, and nothing else.
_COLOUR = r"\x1b\[[0-9;:]{0,64}m"
#: Moves the cursor, erases, scrolls, or changes a mode of the terminal.
_OTHER_CSI = r"(?:\x1b\[|\x9b)[\x30-\x3f]{0,64}[\x20-\x2f]{0,16}[\x40-\x7e]"
_CONTROL = re.compile(
    f"(?P<colour>{_COLOUR})|{_OTHER_CSI}|[\x00-\x08\x0a-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_RESET = "\x1b[0m"


def for_terminal(line: str, *, colours: bool) -> str:
    """One line of a log: colours are kept if they are wanted, cursor movements are dropped, the rest is shown.

    Tabs and carriage returns stay, because progress bars are made of them.
    """
    if line.isprintable():
        return line
    coloured = False

    def harmless(match: re.Match[str]) -> str:
        nonlocal coloured
        if match["colour"] is not None:
            coloured = coloured or colours
            return match[0] if colours else ""
        return "" if len(match[0]) > 1 else _picture(match[0])

    text = _CONTROL.sub(harmless, line)
    return text + _RESET if coloured else text


def wants_colours(out: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether colours belong on this output: a terminal whose user has not turned them off."""
    return out.isatty() and not environment.get("NO_COLOR")


def _picture(letter: str) -> str:
    """A control character as something to see."""
    code = ord(letter)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"
