"""Staged attempts against a real S3 server whose address and keys come from a file that may change at any time."""

from __future__ import annotations

import json
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_agent import House
from tests.acceptance.test_staging import FENCE, WAITS, in_seconds, ready, staged
from tests.s3_server import RunningS3
from tests.waiting import wait_until
from windfall.agent.messages import Interrupt, Progressed
from windfall.jobs.staging import Channel, Checkpoints, Output, Staging

NOBODY_THERE = {
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "y",
}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "house"
    root.mkdir()
    built = House(root, objects_file=str(root / "objects.json"), hide=(str(root),)).launch()
    yield built
    built.close()


@pytest.fixture
def prefix(s3_server: RunningS3) -> str:
    return f"staging-{uuid.uuid4().hex}"


def point_to(house: House, variables: dict[str, str]) -> None:
    path = house.root / "objects.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(variables))
    fresh.rename(path)


def test_everything_goes_through_s3(house: House, s3_server: RunningS3, prefix: str, tmp_path: Path):
    point_to(house, s3_server.environment)
    objects = s3_server.open(prefix)
    objects.put("data/train/a.csv", b"1,2")
    uri = f"s3://{s3_server.bucket}/{prefix}"
    staging = Staging(
        checkpoints=Checkpoints(f"{uri}/checkpoints", publish=True),
        channels=(Channel("train", f"{uri}/data/train"), Channel("piped", f"{uri}/data/train", "Pipe")),
        outputs=(Output("/opt/ml/model", f"{uri}/model.tar.gz"),),
        wants_ml_root=True,
        shares_object_credentials=True,
    )
    script = (
        "cd /opt/ml; cat input/data/train/a.csv; echo; cat input/data/piped_0; echo; echo 5 > checkpoints/step; "
        f"cat /dev/zero | head -c 9000000 > model/weights; ls {house.root}"
    )
    daemon = house.daemon()
    daemon.send(staged(house, "a", script, staging))
    exited = daemon.exited("a")
    assert exited.exit_code == 0, house.log("a")
    said = house.log("a").split()
    assert said[:2] == ["1,2", "1,2"]
    if "bubblewrap" in daemon.inventory.abilities:
        assert said[2:] == ["attempts"], "what the sandbox hides"
    assert exited.checkpoint is not None
    assert objects.get("checkpoints/step") == b"5\n", "as SageMaker publishes it, under its own name"
    objects.get_file("model.tar.gz", tmp_path / "model.tar.gz")
    with tarfile.open(tmp_path / "model.tar.gz") as archive:
        assert archive.getmember("weights").size == 9_000_000


def test_a_server_that_goes_away_and_comes_back_costs_nothing(
    house: House, s3_server: RunningS3, prefix: str
):
    kept = Staging(checkpoints=Checkpoints(f"s3://{s3_server.bucket}/{prefix}/job"))
    point_to(house, NOBODY_THERE)
    daemon = house.daemon()
    daemon.send(staged(house, "a", 'echo 7 > "$WINDFALL_CHECKPOINT_DIR/step"; ' + WAITS, kept))
    away = daemon.until(lambda m: isinstance(m, Progressed) and m.alarm is not None)
    assert isinstance(away, Progressed)
    assert away.doing == "restoring the checkpoint"
    point_to(house, s3_server.environment)
    daemon.started("a")
    wait_until(ready(house, "a"), "it runs")
    daemon.send(Interrupt("a", in_seconds(20), ""))
    assert daemon.exited("a").checkpoint is not None
    daemon.send(staged(house, "b", 'cat "$WINDFALL_CHECKPOINT_DIR/step"', kept, FENCE + 1))
    assert daemon.exited("b").exit_code == 0
    assert house.log("b") == "7\n"
