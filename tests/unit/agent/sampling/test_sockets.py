"""Whose connections carried how much: with made-up connections, and with the kernel's own answer for a real one."""

from __future__ import annotations

import os
import socket

import pytest

from windfall.agent.sampling.sockets import Carried, Traffic, connections, socket_inodes


class Network:
    """Connections and open files as a test says they are."""

    def __init__(self) -> None:
        self.listed: list[Carried] | None = []
        self.files: dict[int, list[int]] = {}
        self.looks = 0
        self.traffic = Traffic(lambda: self.listed, self._look)

    def _look(self, pid: int) -> list[int] | None:
        self.looks += 1
        return self.files.get(pid)


@pytest.fixture
def network() -> Network:
    return Network()


def test_bytes_go_to_the_owner_of_the_connection(network):
    network.listed = [Carried(7, 0, sent=10, received=500), Carried(8, 0, sent=1, received=2)]
    network.files = {100: [7], 200: [8]}
    assert network.traffic.measure({"a": [100], "b": [200]}) == {"a": (500, 10), "b": (2, 1)}


def test_only_what_is_new_counts(network):
    network.files = {100: [7]}
    network.listed = [Carried(7, 0, 10, 500)]
    network.traffic.measure({"a": [100]})
    network.listed = [Carried(7, 0, 15, 800)]
    assert network.traffic.measure({"a": [100]}) == {"a": (300, 5)}


def test_connections_of_others_count_for_nobody_and_are_soon_left_alone(network):
    network.listed = [Carried(9, 0, 10, 500)]
    network.files = {100: []}
    for _ in range(5):
        assert network.traffic.measure({"a": [100]}) == {"a": (0, 0)}
    assert network.looks == 2


def test_a_known_connection_costs_no_look(network):
    network.listed = [Carried(7, 0, 10, 500)]
    network.files = {100: [7]}
    for _ in range(5):
        network.traffic.measure({"a": [100]})
    assert network.looks == 1


def test_an_inode_that_closed_may_be_somebody_elses_later(network):
    network.listed, network.files = [Carried(7, 0, 0, 500)], {100: [7], 200: []}
    network.traffic.measure({"a": [100], "b": [200]})
    network.listed = []
    network.traffic.measure({"a": [100], "b": [200]})
    network.listed, network.files = [Carried(7, 0, 0, 30)], {100: [], 200: [7]}
    assert network.traffic.measure({"a": [100], "b": [200]}) == {"a": (0, 0), "b": (30, 0)}


def test_among_very_many_processes_the_owner_is_found_in_time(network):
    network.listed, network.files = [Carried(7, 0, 0, 500)], {pid: [] for pid in range(200)}
    network.files[150] = [7]
    received = [network.traffic.measure({"a": list(range(200))})["a"][0] for _ in range(8)]
    assert sum(received) == 500


def test_a_kernel_that_does_not_tell_makes_it_unknown(network):
    network.listed = None
    assert network.traffic.measure({"a": [100]}) is None


def test_a_real_connection_is_seen_with_its_bytes(require):
    require(connections() is not None, "the kernel lists no connections by netlink here")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as peer,
    ):
        client.sendall(b"x" * 100_000)
        got = 0
        while got < 100_000:
            got += len(peer.recv(65_536))
        inodes = {os.fstat(one.fileno()).st_ino for one in (client, peer)}
        assert inodes <= set(socket_inodes(os.getpid()))
        by_inode = {one.inode: one for one in connections()}
        assert by_inode[os.fstat(peer.fileno()).st_ino].received == 100_000
        received, _ = Traffic().measure({"me": [os.getpid()]})["me"]
        assert received >= 100_000
