"""Deletions of schedules and groups, remembered by the token of their request.

A client whose answer got lost asks again with the same token, perhaps another daemon or after a restart, and must hear
that it is done instead of 404. Nothing else is remembered of what is gone. Must not know how a deletion is done.
"""

from __future__ import annotations

from windfall.control.round import Round
from windfall.control.state import CLIENT_TOKEN_MS, State
from windfall.schedules.schedule import Deletion

#: As many as there may be schedules: all of them can be deleted at once.
DELETIONS_MAX = 10_000


def is_done(state: State, key: str, client_token: str | None, now: int) -> bool:
    """Whether this very request has been carried out before."""
    deletion = None if client_token is None else state.deletions.get(_request(key, client_token))
    return deletion is not None and now - deletion.at < CLIENT_TOKEN_MS


def note_deletion(state: State, key: str, client_token: str | None, round_: Round) -> None:
    """Remember a request that has just been carried out."""
    if client_token is None:
        return
    request = _request(key, client_token)
    # Out and in again, so that the oldest stay first.
    state.deletions.pop(request, None)
    state.deletions[request] = round_.changes.declared[Deletion, request] = Deletion(request, round_.now)
    forget_deletions(state, round_)


def forget_deletions(state: State, round_: Round) -> None:
    """Drop those that are too old, or too many."""
    while state.deletions:
        oldest = next(iter(state.deletions.values()))
        if len(state.deletions) <= DELETIONS_MAX and round_.now - oldest.at < CLIENT_TOKEN_MS:
            return
        del state.deletions[oldest.request]
        round_.changes.declared[Deletion, oldest.request] = None


def _request(key: str, client_token: str) -> str:
    return f"{key} {client_token}"
