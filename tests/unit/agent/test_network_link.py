"""Whose word on the network's speed counts, in a made /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.agent.network import find_network_mbits, interface_of, own_address

HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


class Host:
    """Network cards and routes as files."""

    def __init__(self, root: Path) -> None:
        self.routes, self.cards = root / "route", root / "net"
        self.routes.write_text(HEAD)
        self.cards.mkdir()

    def card(self, name: str, speed: str | None, *marks: str) -> None:
        (self.cards / name).mkdir()
        if speed is not None:
            (self.cards / name / "speed").write_text(f"{speed}\n")
        for mark in marks:
            (self.cards / name / mark).mkdir()

    def below(self, upper: str, lower: str) -> None:
        (self.cards / upper / f"lower_{lower}").symlink_to(self.cards / lower)

    def route(
        self, card: str, to: str = "00000000", flags: str = "0003", metric: int = 0, mask: str = "00000000"
    ) -> None:
        with self.routes.open("a") as file:
            file.write(f"{card}\t{to}\t010200C0\t{flags}\t0\t0\t{metric}\t{mask}\t0\t0\t0\n")

    @property
    def mbits(self) -> int | None:
        return find_network_mbits(str(self.routes), str(self.cards))


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_the_card_of_the_default_route_speaks(host):
    host.card("eth0", "25000", "device")
    host.card("eth1", "100000", "device")
    host.route("eth1", to="000200C0", mask="00FFFFFF")
    host.route("eth0")
    assert host.mbits == 25_000


def test_of_two_default_routes_the_one_that_is_used_counts(host):
    host.card("eth0", "1000", "device")
    host.card("eth1", "100000", "device")
    host.route("eth0", metric=200)
    host.route("eth1", metric=100)
    host.route("down", metric=1, flags="0002")
    assert host.mbits == 100_000


@pytest.mark.parametrize("speed", ["-1", "0", "", "fast", None])
def test_a_card_that_does_not_say_is_not_known(host, speed):
    host.card("eth0", speed, "device")
    host.route("eth0")
    assert host.mbits is None


def test_a_virtual_cable_and_a_tunnel_are_not_believed(host):
    host.card("veth0", "10000")
    host.route("veth0")
    assert host.mbits is None


def test_a_bond_speaks_for_its_cards_and_a_bridge_is_as_fast_as_what_is_below(host):
    host.card("bond0", "50000", "bonding")
    host.card("veth7", "10000")
    host.card("br0", "10000")
    host.below("br0", "bond0")
    host.below("br0", "veth7")
    host.route("br0")
    assert host.mbits == 50_000


def test_no_route_and_no_file_are_not_known(host, tmp_path):
    assert host.mbits is None
    host.route("gone")
    assert host.mbits is None
    host.routes.write_text(HEAD + "eth0 zz zz zz 0 0 0 zz\n")
    assert host.mbits is None
    assert find_network_mbits(str(tmp_path / "missing")) is None


def test_this_machine_answers_without_fail():
    found = find_network_mbits()
    assert found is None or found > 0


def test_the_address_of_this_machine_belongs_to_one_of_its_interfaces():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") == interface_of("") == ""
    address = own_address()
    assert not address or interface_of(address)
