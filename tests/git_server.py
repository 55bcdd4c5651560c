"""A private repository behind HTTPS and a password, as hosts of Git repositories have them."""

from __future__ import annotations

import base64
import functools
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

IDENTITY = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]


def missing_part() -> str:
    """What this machine lacks for such a server; empty if nothing."""
    if shutil.which("git") is None:
        return "git is not installed"
    if shutil.which("openssl") is None:
        return "openssl is not installed"
    places = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    absent = [name for name in ("http-backend", "remote-https") if not Path(places, f"git-{name}").exists()]
    return f"git {absent[0]} is not installed" if absent else ""


def make_certificate(directory: Path) -> Path:
    """A certificate for localhost that signs itself, with its key in the same file."""
    path = directory / "localhost.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(directory / "key.pem"), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )
    return path


def make_repository(directory: Path, text: str) -> None:
    """A repository with one commit, whose file `code` holds a text."""
    directory.mkdir(parents=True)
    (directory / "code").write_text(text)
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", *IDENTITY, *arguments], cwd=directory, check=True, capture_output=True)


class GitServer:
    """Serves the repositories below a directory to whoever sends this user and password."""

    def __init__(self, root: Path, certificate: Path, login: str) -> None:
        self.root = root
        self.login = f"Basic {base64.b64encode(login.encode()).decode()}"
        #: Every path that was asked for.
        self.asked: list[str] = []
        #: Every Authorization that was sent here, and for what.
        self.sent: list[tuple[str, str]] = []
        #: Paths that lead to another address.
        self.moved: dict[str, str] = {}
        #: Called while somebody who may is being served.
        self.on_served: Callable[[], None] = lambda: None
        self._server = ThreadingHTTPServer(("localhost", 0), functools.partial(_Handler, self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.parent / "key.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        return f"localhost:{self._server.server_port}"

    def url(self, repository: str) -> str:
        return f"https://{self.host}/{repository}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request: refused, led elsewhere, or given to git's own server."""

    def __init__(self, git: GitServer, *arguments: object) -> None:
        self._git = git
        super().__init__(*arguments)

    def log_message(self, *_: object) -> None:
        """Nothing is written."""

    def do_GET(self) -> None:
        first = self.path.strip("/").split("/")[0]
        sent = self.headers.get("Authorization")
        self._git.asked.append(self.path)
        if sent is not None:
            self._git.sent.append((self.path, sent))
        if first in self._git.moved:
            rest = self.path.strip("/").removeprefix(first)
            self._answer(302, {"Location": self._git.moved[first] + rest})
        elif sent != self._git.login:
            self._answer(401, {"WWW-Authenticate": 'Basic realm="private"'})
        else:
            self._git.on_served()
            self._serve()

    do_POST = do_GET  # noqa: N815 - as http.server calls it

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        variables = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._git.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(length),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(
            ["git", "http-backend"],
            input=self.rfile.read(length),
            env=variables,
            capture_output=True,
            check=True,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        self._answer(status, headers, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
