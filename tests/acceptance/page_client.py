"""What a browser with the page does: takes its session out of the URL, and signs its requests with it."""

from __future__ import annotations

import base64
import http.client
import json
import time
from urllib.parse import urlsplit

from windfall.aws_api.protocol.sigv4 import sign


def a_key(windfall, *options):
    printed = windfall.windfall("keys", "create", *options).stdout
    return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)


def the_session(windfall, *options, key=None):
    """What the fragment of the page's URL has."""
    extra = {} if key is None else {"AWS_ACCESS_KEY_ID": key["AWS_ACCESS_KEY_ID"]}
    url = json.loads(windfall.windfall("dashboard", "--json", *options, **extra).stdout)["url"]
    page, _, fragment = url.partition("#session=")
    assert page == f"{windfall.url}/ui/"
    packed = fragment.partition("&")[0]
    return json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))


def ask(windfall, session, operation, /, headers=None, **params):
    """What a browser would send; returns the status and the answer."""
    body = json.dumps(params).encode()
    path = f"/windfall/v1/{operation}"
    signed = signed_headers(windfall, session, path, body)
    status, _, content = fetch(windfall, "POST", path, {**signed, **(headers or {})}, body)
    return status, json.loads(content)


def signed_headers(windfall, session, path, body):
    """The headers of a request that a session signs."""
    return sign(
        method="POST",
        url=windfall.url + path,
        headers={"content-type": "application/json"},
        body=body,
        access_key_id=session["accessKeyId"],
        secret_access_key=session["secretAccessKey"],
        session_token=session["sessionToken"],
        region="us-east-1",
        service="windfall",
        now=time.time(),
    )


def fetch(windfall, method, path, headers, body=b""):
    parts = urlsplit(windfall.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()
