"""The files of the page under /ui/, and the headers that every browser gets with them.

All files are read once, at the start, into a table by their path: no request can name a path that is then opened. The
headers let the page run its own scripts alone, speak to this address alone, and be framed by nobody. A browser that was
led here by a host name that is not this machine's (DNS rebinding) gets nothing. Must not know keys or operations.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from windfall.aws_api.protocol.request import HttpRequest, Response

UI = "/ui/"
#: The folder of the installed package that has the files.
DASHBOARD = Path(__file__).parent.parent / "dashboard"

_TEXT = b"text/plain; charset=utf-8"
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".ico": b"image/x-icon",
    ".json": b"application/json",
    ".woff2": b"font/woff2",
    ".txt": _TEXT,
}
#: What is in a file for those who read it alone: indentation, and lines that are a comment. Lines keep their numbers.
_FOR_READERS = {".js": re.compile(rb"(?m)^\t+(?://.*)?|^//.*"), ".css": re.compile(rb"(?m)^\t+")}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    b" connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFETY: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent."""

    content_type: bytes
    content: bytes
    etag: bytes


def read_files(root: Path) -> dict[str, PageFile]:
    """All files below a folder that browsers may have, by their path in URLs."""
    files: dict[str, PageFile] = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        kind = _TYPES.get(path.suffix)
        if kind is None or any(part.startswith((".", "_")) for part in parts) or not path.is_file():
            continue
        content = path.read_bytes()
        if path.suffix in _FOR_READERS:
            content = _FOR_READERS[path.suffix].sub(b"", content)
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'.encode("ascii")
        files[UI + "/".join(parts)] = PageFile(kind, content, etag)
    if index := files.get(f"{UI}index.html"):
        files[UI] = index
    return files


class PageFiles:
    """Answers GET of everything under /ui/, and leads browsers there."""

    def __init__(self, files: Mapping[str, PageFile], hosts: Iterable[str] = ()) -> None:
        """`hosts` are names of this address, besides IP addresses, localhost and the host's own names."""
        self._files = files
        self._hosts = {name.lower().rstrip(".") for name in (*hosts, *_own_names()) if name}

    async def answer(self, request: HttpRequest) -> Response:
        """A file, or the reason why there is none."""
        host = request.headers.get(b"host", b"").decode("latin-1")
        if not self._is_own(host):
            return _plain(
                421,
                f"{host[:200]!r} is not a name of this Windfall daemon. Open the page by its address, or add the name "
                "to the setting page_hosts.",
            )
        file = self._files.get(request.path)
        if file is None:
            text = "There is no such file."
            if UI not in self._files:
                text = "This installation of Windfall has no page: install it from a wheel, or from a whole checkout."
            return _plain(404, text)
        caching = ((b"etag", file.etag), (b"cache-control", b"no-cache"))
        if file.etag in request.headers.get(b"if-none-match", b""):
            return Response(304, file.content_type, b"", SAFETY + caching)
        return Response(200, file.content_type, file.content, SAFETY + caching)

    async def lead(self, request: HttpRequest) -> Response | None:
        """Lead a browser that asks for the address alone to the page; None for clients of the API."""
        is_browser = b"text/html" in request.headers.get(b"accept", b"")
        if not is_browser or request.query or b"authorization" in request.headers:
            return None
        return Response(302, _TEXT, b"", ((b"location", UI.encode("ascii")), *SAFETY))

    def _is_own(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _own_names() -> tuple[str, str]:
    name = socket.gethostname()
    return name, name.partition(".")[0]


def _plain(status: int, text: str) -> Response:
    return Response(status, _TEXT, text.encode("utf-8", "replace"), SAFETY)
