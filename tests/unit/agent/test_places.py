"""Where a staged attempt's files are and where its job sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.agent.places import BadPlace, Places, check_bind, wants_own_root
from windfall.jobs.staging import Checkpoints, GitSource, Staging


def places(path: str | None = "/opt/ml/checkpoints/", *, sandboxed: bool = True) -> Places:
    kept = Checkpoints("file:///store", path) if path is not None else None
    return Places("/attempts/a.ml", Staging(checkpoints=kept), sandboxed)


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/opt/ml", "/attempts/a.ml"),
        ("/opt/ml/model/", "/attempts/a.ml/model"),
        ("/opt/ml/input/../model", "/attempts/a.ml/model"),
        ("/opt/ml/checkpoints", "/attempts/a.ml/checkpoints"),
    ],
)
def test_what_is_below_the_root_is_in_the_private_directory(path: str, real: str):
    assert places().real(path) == real


@pytest.mark.parametrize(
    "path",
    ["/opt/mlflow", "/etc/passwd", "/opt/ml/../../etc/passwd", "relative", "/opt/ml/.windfall/notice.json"],
)
def test_nothing_else_can_be_staged(path: str):
    with pytest.raises(BadPlace, match="below /opt/ml"):
        places().real(path)


def test_checkpoints_elsewhere_are_bound_there():
    elsewhere = places("/data/ckpt/")
    real = "/attempts/a.ml/.windfall/checkpoints"
    assert elsewhere.checkpoint_directory == real
    assert elsewhere.real("/data/ckpt/deep") == f"{real}/deep"
    assert list(elsewhere.binds()) == [("/attempts/a.ml", "/opt/ml"), (real, "/data/ckpt")]
    assert elsewhere.environment(80)["WINDFALL_CHECKPOINT_DIR"] == "/data/ckpt"
    outside = places("/data/ckpt/", sandboxed=False)
    assert outside.environment(80)["WINDFALL_CHECKPOINT_DIR"] == real
    assert outside.translated("--out /data/ckpt/x --not /data/ckpts") == f"--out {real}/x --not /data/ckpts"


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("/opt/ml", "ROOT"),
        ("/opt/ml/model", "ROOT/model"),
        ("--dir=/opt/ml/model", "--dir=ROOT/model"),
        ('{"a": "/opt/ml/x", "b": ["/opt/ml"]}', '{"a": "ROOT/x", "b": ["ROOT"]}'),
        ("/usr/bin:/opt/ml/bin", "/usr/bin:ROOT/bin"),
        ("/opt/mlflow", "/opt/mlflow"),
        ("/opt/ml.bak", "/opt/ml.bak"),
        ("/data/opt/ml/x", "/data/opt/ml/x"),
    ],
)
def test_texts_are_translated_only_where_there_is_no_sandbox(text: str, translated: str):
    assert places().translated(text) == text
    assert places(sandboxed=False).translated(text) == translated.replace("ROOT", "/attempts/a.ml")


@pytest.mark.parametrize(
    ("text", "alone", "several"),
    [
        ("algo-1", "127.0.0.1", "127.64.0.1"),
        ('["algo-1","algo-2"]', '["127.0.0.1","algo-2"]', '["127.64.0.1","127.64.0.2"]'),
        ("algo-2:8890", "algo-2:8890", "127.64.0.2:8890"),
        ("algo-10", "algo-10", "algo-10"),
        ("job/algo-1-1700", "job/algo-1-1700", "job/algo-1-1700"),
        ("my-algo-1", "my-algo-1", "my-algo-1"),
    ],
)
def test_training_hosts_go_by_their_addresses_where_there_is_no_sandbox(text: str, alone: str, several: str):
    staging = Staging(wants_ml_root=True)
    hosts = (("algo-1", "127.64.0.1"), ("algo-2", "127.64.0.2"))
    assert Places("/a.ml", staging, sandboxed=False).translated(text) == alone
    assert Places("/a.ml", replace(staging, hosts=hosts), sandboxed=False).translated(text) == several
    assert Places("/a.ml", replace(staging, hosts=hosts), sandboxed=True).translated(text) == text
    assert Places("/a.ml", Staging(), sandboxed=False).translated(text) == text


def test_the_environment_says_where_everything_is():
    inside, outside = places(None).environment(0), places(sandboxed=False).environment(4711)
    assert inside == {
        "WINDFALL_NOTICE_FILE": "/opt/ml/.windfall/notice.json",
        "WINDFALL_REBALANCE_FILE": "/opt/ml/.windfall/rebalance.json",
        "WINDFALL_PROGRESS_FILE": "/opt/ml/.windfall/progress/progress.json",
    }
    assert outside["AWS_EC2_METADATA_SERVICE_ENDPOINT"] == "http://127.0.0.1:4711/"
    assert outside["SAGEMAKER_BASE_DIR"] == "/attempts/a.ml"
    assert outside["WINDFALL_NOTICE_FILE"] == "/attempts/a.ml/.windfall/notice.json"


@pytest.mark.parametrize(
    "seen", ["/", "/usr", "/usr/local/ckpt", "/etc/x", "/bin", "/lib64/x", "/proc/x", "data"]
)
def test_no_part_of_the_system_is_replaced(seen: str):
    with pytest.raises(BadPlace, match="belongs to the system"):
        check_bind(seen)


@pytest.mark.parametrize("seen", ["/opt/ml", "/data/ckpt", "/home/user/x", "/tmp/x", "/mnt"])
def test_other_places_may_be(seen: str):
    check_bind(seen)


def test_a_sandbox_is_wanted_for_files_that_a_job_expects_at_a_place():
    assert wants_own_root(Staging(wants_ml_root=True))
    assert wants_own_root(Staging(checkpoints=Checkpoints("file:///x")))
    assert not wants_own_root(Staging(git=GitSource("https://example.com/r", "main")))
