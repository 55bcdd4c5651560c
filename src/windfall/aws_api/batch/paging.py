"""Pages of lists that are read whole, and tokens that say where the next page begins.

A token is opaque to clients and only ever a position, never a query. Must not know what is listed.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from windfall.aws_api.batch.rejections import client_exception
from windfall.aws_api.protocol.errors import ApiError

Item = TypeVar("Item")

PAGE_MAX = 100
_CHECK_SUM_BYTES = 6


def invalid_token() -> ApiError:
    """The refusal of a nextToken that we did not give."""
    return client_exception("nextToken is not valid; send the one of the previous answer unchanged")


def token_of(position: str) -> str:
    """The token for a position, with a check sum so that a mangled one does not reach the store."""
    text = position.encode()
    return base64.urlsafe_b64encode(_check_sum(text) + text).decode("ascii")


def position_in(token: str) -> str:
    """The position that a token stands for."""
    try:
        content = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
        check_sum, text = content[:_CHECK_SUM_BYTES], content[_CHECK_SUM_BYTES:]
        if check_sum == _check_sum(text):
            return text.decode()
    except (binascii.Error, UnicodeError):
        pass
    raise invalid_token()


def _check_sum(text: bytes) -> bytes:
    return hashlib.blake2s(text, digest_size=_CHECK_SUM_BYTES, person=b"nextpage").digest()


def page_size(params: Mapping[str, Any], most: int) -> int:
    """How many results to answer with; asking for more than the most gives the most."""
    requested = params.get("maxResults")
    if requested is None:
        return most
    if requested < 1:
        raise client_exception(f"maxResults must be between 1 and {most}")
    return min(int(requested), most)


def page(
    items: Iterable[Item], key: Callable[[Item], tuple[str | int, ...]], params: Mapping[str, Any]
) -> tuple[list[Item], str | None]:
    """The page that `maxResults` and `nextToken` ask for, ordered by key, and the next page's token.

    The token holds the key of the last item given, so that what is created or deleted between two pages
    neither repeats nor hides anything else.
    """
    size = page_size(params, PAGE_MAX)
    ordered = sorted(items, key=key)
    start = 0
    if token := params.get("nextToken"):
        start = _place_after(ordered, key, position_in(token))
    chosen = ordered[start : start + size]
    more = start + size < len(ordered)
    return chosen, token_of(msgspec.json.encode(key(chosen[-1])).decode()) if more else None


def _place_after(ordered: Sequence[Item], key: Callable[[Item], tuple[str | int, ...]], position: str) -> int:
    try:
        last = msgspec.json.decode(position, type=tuple[str | int, ...])
        return bisect.bisect_right(ordered, last, key=key)
    except (msgspec.DecodeError, TypeError):
        # A forged one: no JSON, or numbers where names belong.
        raise invalid_token() from None
