"""What is sent to a Ray cluster, which clusters it refuses, and what its lines may be; without Ray."""

from __future__ import annotations

import ast

import pytest

from windfall.agent.errors import ProtocolError
from windfall.engines.ray.bridge_client import bridge_text, prefix_words
from windfall.engines.ray.cluster_look import ClusterRefused, check
from windfall.engines.ray.errors import ending, refusal
from windfall.engines.ray.lines import Bytes, Node, NodesSeen, for_people, read_line, write_line

OPEN = {"ray": "2.60.0", "address": "10.0.0.1:6379", "open": True}
GUARDED = {"ray": "2.60.0", "address": "10.0.0.1:6379", "open": False, "token": True}


def test_the_bridge_is_one_text_of_the_standard_library_and_ray():
    modules = {
        (name.name if isinstance(node, ast.Import) else str(node.module)).split(".")[0]
        for node in ast.walk(ast.parse(bridge_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert "windfall" not in modules
    assert modules >= {"asyncio", "ray"}
    # It is an argument of a program there.
    assert len(bridge_text().encode()) < 100_000


def refused(seen: dict[str, object], **options: bool) -> tuple[str, str]:
    with pytest.raises(ClusterRefused) as caught:
        check(seen, trusts_network=options.get("trusts_network", False))
    return caught.value.code, refusal(caught.value.code, str(caught.value))


def test_a_cluster_that_answers_without_a_token_is_refused_unless_told():
    code, text = refused(OPEN)
    assert code == "open"
    assert "--ray-trusts-network" in text
    assert check(OPEN, trusts_network=True) == "10.0.0.1:6379"


def test_a_cluster_with_a_token_needs_one_here(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    code, text = refused(GUARDED, trusts_network=True)
    assert code == "no-token"
    assert str(tmp_path / "token") in text
    (tmp_path / "token").write_text("secret")
    assert check(GUARDED, trusts_network=False) == "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("seen", "code", "says"),
    [
        ({"no_ray": "No module named 'ray'"}, "no-ray", "--ray-python"),
        (OPEN | {"ray": "2.9.3"}, "old-ray", "2.58 or later"),
        (OPEN | {"address": ""}, "no-cluster", "RAY_ADDRESS"),
        (GUARDED | {"token": False, "why": "RpcError: no route"}, "no-answer", "no route"),
    ],
)
def test_every_refusal_says_what_to_do(seen: dict[str, object], code: str, says: str):
    assert refused(seen)[0] == code
    assert says in refused(seen)[1]


def test_an_end_names_the_command_and_the_last_words():
    assert "--ray-python" in ending("ssh head", "python3", 127, "sh: 1: exec: python3: not found\n")
    assert "cannot connect: Permission denied" in ending("ssh head", "python3", 255, "\nPermission denied\n")
    assert "status 1: it says nothing" in ending("ssh head", "python3", 1, "")


def test_lines_are_read_as_they_were_written():
    node = b'{"id":"a1","ip":"10.0.0.2","labels":{"k":"v"},"cpus":2.0,"state":"DRAINING","deadline_ms":5}'
    assert read_line(b'{"is":"nodes","nodes":[' + node + b'],"all":true}') == NodesSeen(
        [Node(id="a1", ip="10.0.0.2", labels={"k": "v"}, cpus=2.0, state="DRAINING", deadline_ms=5)], True
    )
    assert read_line(b'{"is":"bytes","stream":3,"data":"aGVsbG8="}') == Bytes(3, b"hello")
    assert write_line("bytes", stream=3, data=b"hello") == b'{"do":"bytes","stream":3,"data":"aGVsbG8="}\n'


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b'{"is":"nodes"}',
        b'{"is":"bytes","stream":1,"data":"?"}',
        b"\xff",
        b'{"is":"x"}',
        b'{"is":"opened","stream":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_line_that_makes_no_sense_is_refused(line: bytes):
    with pytest.raises(ProtocolError, match="makes no sense"):
        read_line(line)


def test_a_number_that_no_store_has_is_refused_and_rays_own_word_for_never_is_not():
    line = b'{"is":"nodes","nodes":[{"id":"a","ip":"10.0.0.2","deadline_ms":%d}]}'
    assert isinstance(read_line(line % ((1 << 63) - 1)), NodesSeen)
    with pytest.raises(ProtocolError):
        read_line(line % 10**30)


def test_what_a_cluster_says_is_one_short_line_for_people():
    assert for_people("a\x1b[31m\nb\u2028c" + "x" * 1000) == ("a [31m b c" + "x" * 1000)[:300]


def test_the_command_is_words_and_local_is_none():
    assert prefix_words("local") == []
    assert prefix_words("kubectl exec -i svc/head --") == ["kubectl", "exec", "-i", "svc/head", "--"]
    with pytest.raises(ValueError, match="quotation"):
        prefix_words("ssh 'head")
