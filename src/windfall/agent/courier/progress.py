"""Reads what a job says of itself in its progress file. Decides which of it is believed; must not know whose it is."""

from __future__ import annotations

import msgspec

from windfall.jobs.staging import Progress

#: A longer file is no progress file.
MOST_BYTES = 16 << 10
_decoder = msgspec.json.Decoder(Progress)


def parse_progress(content: bytes | None) -> Progress | None:
    """Return what a progress file says, None when it is not there or says nothing that can be used."""
    if not content or len(content) >= MOST_BYTES:
        return None
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError:
        return None
