"""The page's files: exact names alone, by the types of their endings, with headers that forbid all else."""

from __future__ import annotations

import asyncio

import pytest

from windfall.aws_api.protocol.request import HttpRequest
from windfall.daemon.page_files import PageFiles, read_files


@pytest.fixture
def site(tmp_path):
    root = tmp_path / "dashboard"
    (root / "vendor").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html>")
    (root / "vendor" / "lib.js").write_text("export {}")
    (root / "secret.py").write_text("x")
    (root / ".hidden.js").write_text("x")
    (tmp_path / "outside.js").write_text("x")
    return PageFiles(read_files(root), ["windfall.example.com"])


def ask(site, path, host="127.0.0.1:8470", **headers):
    sent = {
        b"host": host.encode(),
        **{name.replace("_", "-").encode(): text for name, text in headers.items()},
    }
    return asyncio.run(site.answer(HttpRequest("GET", path, "", sent, b"")))


def test_a_file_has_its_type_its_hash_and_the_policy(site):
    answer = ask(site, "/ui/")
    assert (answer.status, answer.content_type, answer.body) == (
        200,
        b"text/html; charset=utf-8",
        b"<!doctype html>",
    )
    headers = dict(answer.headers)
    policy = headers[b"content-security-policy"].decode()
    for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert rule in policy.split("; ")
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert ask(site, "/ui/", if_none_match=headers[b"etag"]).status == 304
    assert ask(site, "/ui/vendor/lib.js").content_type == b"text/javascript; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../outside.js",
        "/ui/%2e%2e/outside.js",
        "/ui/vendor/",
        "/ui/vendor",
        "/ui//index.html",
        "/ui/secret.py",
        "/ui/.hidden.js",
        "/ui/index.html%00.js",
    ],
)
def test_nothing_else_is_there(site, path):
    answer = ask(site, path)
    assert answer.status == 404
    assert b"content-security-policy" in dict(answer.headers)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1", "[::1]:8470", "localhost", "a.localhost:1", "windfall.example.com"]
)
def test_the_page_is_served_under_its_own_names(site, host):
    assert ask(site, "/ui/", host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8470", "127.0.0.1.evil.example", "", "[::1", "localhost.evil.example"]
)
def test_a_browser_that_another_name_led_here_gets_nothing(site, host):
    answer = ask(site, "/ui/", host)
    assert answer.status == 421
    assert b"page_hosts" in answer.body


def test_a_browser_is_led_to_the_page_and_a_client_of_the_api_is_not(site):
    def lead(query="", **headers):
        sent = {name.encode(): text for name, text in headers.items()}
        return asyncio.run(site.lead(HttpRequest("GET", "/", query, sent, b"")))

    answer = lead(accept=b"text/html,*/*")
    assert (answer.status, dict(answer.headers)[b"location"]) == (302, b"/ui/")
    assert lead(accept=b"*/*") is None
    assert lead(accept=b"text/html", authorization=b"AWS4-HMAC-SHA256 ...") is None
    assert lead("Action=GetCallerIdentity", accept=b"text/html") is None
