"""Scalars of TensorBoard's files, as two real writers made them, and what becomes of damaged or hostile files."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.event_writer import a_record, a_scalar
from windfall.daemon import event_scan
from windfall.daemon.event_scan import POINTS_MAX, RECORD_BYTES, TAGS_MAX, curves_of, masked_crc

FILES = Path(__file__).parent / "event_files"
#: By tensorboard 2.21 (scalars as tensors, and one of the older form) and tensorboardX 2.6.
TENSORBOARD, TENSORBOARDX = (
    bytes.fromhex((FILES / f"{name}.tfevents.hex").read_text()) for name in ("tensorboard", "tensorboardx")
)


def test_the_checksum_is_that_of_the_format():
    # Known answer of CRC-32C: "123456789" gives e3069283, here with the mask.
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_of_tensorboard_and_of_its_older_form():
    curves, bad = curves_of(TENSORBOARD)
    assert bad == 0
    assert [(at, step, round(value, 3)) for at, step, value in curves["accuracy"]] == [
        (1_700_000_100_000 + 1000 * n, n, n / 5) for n in range(5)
    ]
    assert curves["old"] == [(1_700_000_200_000, -1, 2.5)]


def test_scalars_of_tensorboardx_and_nothing_else_of_it():
    curves, bad = curves_of(TENSORBOARDX)
    assert (set(curves), bad) == ({"train/loss"}, 0)
    assert [step for _, step, _ in curves["train/loss"]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("whole", [TENSORBOARD, TENSORBOARDX])
def test_a_file_that_is_being_written_has_what_is_whole(whole):
    complete = sum(len(points) for points in curves_of(whole)[0].values())
    seen = [sum(map(len, curves_of(whole[:end])[0].values())) for end in range(len(whole))]
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] <= complete


def test_any_damage_is_counted_and_never_an_error():
    rng = random.Random(7)
    for _ in range(500):
        content = bytearray(TENSORBOARD)
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        curves, bad = curves_of(bytes(content))
        assert bad or content == TENSORBOARD or curves
    for _ in range(200):
        curves_of(rng.randbytes(rng.randint(0, 300)))
        curves_of(a_record(rng.randbytes(rng.randint(0, 60))))


def test_what_is_hostile_is_bounded():
    many = b"".join(a_scalar(f"tag{n}", 1.0) for n in range(TAGS_MAX + 20))
    assert len(curves_of(many)[0]) == TAGS_MAX
    long = b"".join(a_scalar("x", float(n), step=n) for n in range(4 * POINTS_MAX + 500))
    assert len(curves_of(long)[0]["x"]) <= 4 * POINTS_MAX
    assert curves_of(a_scalar("t" * 5000, 1.0))[0] == {"t" * 100: [(1_700_000_000_000, 1, 1.0)]}
    assert curves_of(a_record(b"\0" * (RECORD_BYTES + 1)) + a_scalar("after", 1.0))[0].keys() == {"after"}
    assert curves_of(struct.pack("<Q", 1 << 63) + b"\0" * 100) == ({}, 1)
    for value in (float("nan"), float("inf")):
        assert curves_of(a_scalar("x", value)) == ({}, 0)
    assert curves_of(a_scalar("x", 1.0, at=float("nan"))) == ({}, 0)


def test_it_runs_without_the_package():
    done = subprocess.run(
        [sys.executable, "-I", "-S", event_scan.__file__],
        input=TENSORBOARD,
        stdout=subprocess.PIPE,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line[0] for line in lines[:-1]] == ["accuracy", "old"]
    assert lines[-1] == {"bad": 0}
