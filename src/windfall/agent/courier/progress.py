"""Reads what a job says of itself in its progress file. Decides which of it is believed; must not know whose it is."""

from __future__ import annotations

import msgspec

from windfall.jobs.staging import Progress

#: A longer file is not a progress file.
MOST_BYTES = 16 << 10
#: A larger whole number counts nothing that there is, and cannot be reckoned with everywhere.
MOST = 2**53
_decoder = msgspec.json.Decoder(Progress)


def parse_progress(content: bytes | None) -> Progress | None:
    """Return what a progress file says, None when it is not there or says nothing that can be used."""
    if not content or len(content) >= MOST_BYTES:
        return None
    try:
        found = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    numbers = (getattr(found, field) for field in found.__slots__)
    return None if any(isinstance(number, int) and abs(number) > MOST for number in numbers) else found
