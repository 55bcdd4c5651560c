"""Whose process listens at a port."""

from __future__ import annotations

import os
import socket

from windfall.daemon.listeners import listener_uids, uids_in, why_foreign

OWNERS = {200_000: "lab", 200_001: "guests"}
LINE = (
    "  {}: 0100007F:{:04X} 00000000:0000 {} 00000000:00000000 00:00000000 00000000 {:5} 0 1 1 0 100 0 0 10 0"
)


def test_only_those_that_listen_at_the_port_count():
    lines = [
        LINE.format(0, 20_001, "0A", 65534),
        LINE.format(1, 20_001, "01", 7),
        LINE.format(2, 20_002, "0A", 8),
    ]
    assert uids_in(lines, 20_001) == {65534}
    assert uids_in(["", "nonsense"], 20_001) == set()


def test_a_real_listener_is_found():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert listener_uids(listening.getsockname()[1]) == {os.getuid()}
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        assert listener_uids(listening.getsockname()[1]) == {os.getuid()}


def test_another_tenants_program_never_answers():
    assert why_foreign({200_001}, "lab", OWNERS) is not None
    assert why_foreign({65534}, "lab", OWNERS) is not None, "the job user of other tenants"
    assert why_foreign({200_000, 200_001}, "lab", OWNERS) is not None, "two share the port"
    assert why_foreign({200_001}, "default", OWNERS) is not None
    for uids in ({200_000}, {0}, {os.geteuid()}, set()):
        assert why_foreign(uids, "lab", OWNERS) is None
    assert why_foreign({65534}, "default", OWNERS) is None
    assert why_foreign({1000}, "default", {}) is None
