"""What `windfall shares` prints, and what it asks of the daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

FAIR: dict[str, Any] = {
    "queue": "research",
    "policy": "weekly",
    "kind": "fairshare",
    "unit": "VCPU",
    "total": {"vcpus": 64.0, "gpus": 8.0},
    "used": {"vcpus": 12.5, "gpus": 3.0},
    "kept": {"vcpus": 16.0, "gpus": 2.0},
    "windowSeconds": 3600,
    "computeReservation": 50,
    "shares": [
        {
            "share": "blue",
            "used": {"vcpus": 12.5, "gpus": 3.0},
            "waiting": 1_200,
            "running": 3,
            "weight": 0.125,
            "average": {"vcpus": 4.25, "gpus": 1.0},
            "score": 0.0625,
        },
        {
            "share": "green",
            "used": {"vcpus": 0.0, "gpus": 0.0},
            "waiting": 2,
            "running": 0,
            "weight": 1.0,
            "average": {"vcpus": 0.0, "gpus": 0.0},
            "score": 0.0,
        },
    ],
}
QUOTA: dict[str, Any] = {
    **FAIR,
    "queue": "lab",
    "kind": "quota",
    "total": {"vcpus": 16.0, "gpus": 0.0},
    "computeReservation": 0,
    "shares": [
        {
            "share": "owner",
            "used": {"vcpus": 6.0, "gpus": 0.0},
            "waiting": 0,
            "running": 6,
            "sharing": "LEND_AND_BORROW",
            "limits": {"VCPU": 4.0},
            "usedOfLimits": {"VCPU": 6.0},
            "borrowed": {"VCPU": 2.0},
        }
    ],
}


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_fair_shares_with_the_next_one_first(daemon, windfall):
    daemon.answers["Shares"] = {"queues": [FAIR]}
    page = squeezed(windfall("shares").out)
    assert page[0].startswith(
        "research: fairshare policy weekly; 12.5 vCPUs, 3 GPUs of 64 vCPUs, 8 GPUs used, "
    )
    assert page[0].endswith("2 shares, use counts over 3,600 s")
    assert page[1:] == [
        "kept for shares that are not active: 16 vCPUs, 2 GPUs (computeReservation 50)",
        "SHARE WEIGHT USED NOW AVERAGE SCORE WAITING RUNNING",
        "green 1 0 vCPUs, 0 GPUs 0 vCPUs, 0 GPUs 0.0000 2 0",
        "blue 0.125 12.5 vCPUs, 3 GPUs 4.25 vCPUs, 1 GPU 0.0625 1,200 3",
    ]
    assert daemon.params_of("Shares") == [{}]


def test_quota_shares_with_their_limits(daemon, windfall):
    daemon.answers["Shares"] = {"queues": [QUOTA]}
    page = squeezed(windfall("shares", "lab").out)
    assert page[0] == "lab: quota policy weekly; 12.5 vCPUs of 16 vCPUs used, 1 share"
    assert page[2] == "owner LEND_AND_BORROW 6 of 4 VCPU 2 VCPU 6 vCPUs 0 6"
    assert daemon.params_of("Shares") == [{"queue": "lab"}]


def test_a_queue_of_service_jobs_counts_instances(daemon, windfall):
    total = {"vcpus": 4.0, "gpus": 0.0}
    daemon.answers["Shares"] = {"queues": [{**FAIR, "unit": "NUM_INSTANCES", "total": total}]}
    assert "12.5 instances of 4 instances used" in windfall("shares").out


def test_several_queues_and_those_without_shares(daemon, windfall):
    fifo = {**FAIR, "queue": "plain", "policy": None, "kind": "fifo", "shares": []}
    daemon.answers["Shares"] = {"queues": [fifo, QUOTA]}
    page = squeezed(windfall("shares").out)
    assert page[0].startswith("plain: first come, first served; 12.5 vCPUs, 3 GPUs of 64 vCPUs, 8 GPUs used")
    assert page[1] == ""
    assert page[2].startswith("lab:")


def test_none_at_all_is_said(daemon, windfall):
    daemon.answers["Shares"] = {"queues": []}
    done = windfall("shares")
    assert (done.out, "no queue has a scheduling policy" in done.err) == ("", True)


@pytest.mark.parametrize("arguments", [("shares", "--json"), ("shares", "research", "--json")])
def test_json_is_what_the_daemon_said(daemon, windfall, arguments):
    daemon.answers["Shares"] = {"queues": [FAIR]}
    assert json.loads(windfall(*arguments).out) == {"queues": [FAIR]}
