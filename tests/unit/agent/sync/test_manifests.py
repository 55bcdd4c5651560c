"""Manifests are told whole from damaged, and never lead out of their directory."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.sync.errors import DamagedError
from windfall.agent.sync.manifests import (
    DirectoryEntry,
    FileEntry,
    LinkEntry,
    Manifest,
    Order,
    chunk_key,
    decode,
    encode,
    is_safe,
    order_of,
)

DIGEST = "ab" * 32


def a_manifest(path: str = "a/b", size: int = 10, pieces: tuple[str, ...] = (DIGEST, DIGEST)) -> Manifest:
    file = FileEntry(path, size, 5, 0o644, pieces)
    return Manifest(Order(7, 3), 1, 2, "a/b", 4, 8, (file,), (DirectoryEntry("a", 0o755),))


def test_a_manifest_survives_the_way():
    manifest = a_manifest()
    assert decode(encode(manifest), manifest.order) == manifest
    assert manifest.bytes == 10
    assert manifest.mark.step == 4
    assert manifest.piece_bytes() == {DIGEST: 2}


def test_keys_sort_by_attempt_and_then_by_commit():
    keys = [Order(fence, seq).key for fence, seq in ((9, 1), (10, 1), (10, 2), (1_700_000_000_000, 1))]
    assert keys == sorted(keys)
    assert [order_of(key) for key in keys] == sorted(order for key in keys if (order := order_of(key)))
    assert order_of(".windfall/manifests/x.json") is None
    assert chunk_key(DIGEST) == f".windfall/chunks/ab/{DIGEST}"


@given(st.data())
def test_every_cut_and_every_changed_byte_is_seen(data):
    content = encode(a_manifest())
    at = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(DamagedError):
        decode(content[:at], Order(7, 3))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
    with pytest.raises(DamagedError):
        decode(content[:at] + bytes([other]) + content[at + 1 :], Order(7, 3))


def signed(body: dict) -> bytes:
    text = json.dumps(body, separators=(",", ":"))
    return f'{text[:-1]},"digest":"{hashlib.sha256(text.encode()).hexdigest()}"}}'.encode()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", ".", "", "a/.", "x\0y", 7])
def test_a_path_that_leads_out_is_refused_even_when_the_digest_is_right(path):
    assert not is_safe(path)
    body = json.loads(encode(a_manifest()))
    del body["digest"]
    good = signed(body)
    assert decode(good, Order(7, 3)).files[0].path == "a/b"
    body["files"][0][0] = path
    with pytest.raises(DamagedError):
        decode(signed(body), Order(7, 3))
    body["files"] = []
    body["directories"] = [[path, 0o755]]
    with pytest.raises(DamagedError):
        decode(signed(body), Order(7, 3))


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"chunk_bytes": 0}, {"chunk_bytes": 3}, {"files": [["a"]]}]
)
def test_what_makes_no_sense_is_damaged(change):
    body = {**json.loads(encode(a_manifest())), **change}
    del body["digest"]
    with pytest.raises(DamagedError):
        decode(signed(body), Order(7, 3))


def test_a_piece_must_be_named_by_a_digest():
    with pytest.raises(DamagedError):
        decode(encode(a_manifest(pieces=("../../x", DIGEST))), Order(7, 3))


def with_links(*links) -> bytes:
    body = json.loads(encode(a_manifest()))
    del body["digest"]
    body["links"] = list(links)
    return signed(body)


def test_links_survive_the_way_and_a_manifest_without_any_is_as_it_was():
    manifest = replace(a_manifest(), links=(LinkEntry("a/latest", "b", 9),))
    assert decode(encode(manifest), manifest.order) == manifest
    assert b"links" not in encode(a_manifest())


@pytest.mark.parametrize(
    "link",
    [
        ["x", "/etc", 1],
        ["x", "../y", 1],
        ["../x", "y", 1],
        ["a", "elsewhere", 1],
        ["a/b", "elsewhere", 1],
        ["a/b/c/d", 7, 1],
        ["x", "y"],
    ],
)
def test_a_link_that_leads_out_or_has_something_behind_it_is_damage(link):
    assert decode(with_links(["a/ok", "b", 1]), Order(7, 3)).links
    with pytest.raises(DamagedError):
        decode(with_links(link), Order(7, 3))


def test_a_link_behind_a_link_is_damage():
    with pytest.raises(DamagedError):
        decode(with_links(["x", "y", 1], ["x/z", "y", 1]), Order(7, 3))
