"""How fast a checkpoint directory reaches the store and comes back: beside a raw disk copy, and beside plain puts.

A checkpoint of one large file and some small ones. The disk's figure is `cp` with an fsync of each file; the S3
server's is obstore's own parallel put of the same files without hashing, manifests or anything of ours.
`python -m bench.sync`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.results import Bench, Result, line, middle
from windfall.agent.sync import CheckpointSync
from windfall.daemon.s3_server import S3Server
from windfall.daemon.seaweedfs import S3ServerError
from windfall.objects.credentials import ObjectOptions
from windfall.objects.opening import open_objects
from windfall.objects.port import ObjectStore

_SMALL_FILES = 20


def measure(bench: Bench) -> list[Result]:
    """Up and down over files, then over a real S3 server where there is one."""
    size = bench.count(512 << 20, 64 << 20)
    workspace = Path(tempfile.mkdtemp(prefix="sync-", dir=bench.workspace))
    source = workspace / "checkpoints"
    try:
        bytes_in_all = _checkpoint(source, size)
        runs = bench.count(5, 3)
        results = _over_files(bench, workspace, source, bytes_in_all, runs)
        results += _over_s3(bench, workspace, source, bytes_in_all, runs)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    return results


def _over_files(bench: Bench, workspace: Path, source: Path, size: int, runs: int) -> list[Result]:
    copies, ups, downs, reads = [], [], [], []
    for run in range(runs):  # in turn, because the disk is not the same from one minute to the next
        copies.append(_rate(size, _copy_durably, source, workspace / "copy"))
        store = workspace / f"store-{run}"
        objects = open_objects(f"file://{store}")
        ups.append(_rate(size, _up, objects, source))
        reads.append(_rate(size, _copy, workspace / "copy", workspace / "back"))
        downs.append(_rate(size, _down, objects, workspace / "restored"))
        for place in (store, workspace / "copy", workspace / "back", workspace / "restored"):
            shutil.rmtree(place)
        bench.say(f"file://: copy {copies[-1]:.0f}, sync {ups[-1]:.0f}, restore {downs[-1]:.0f} MB/s")
    return [
        _result("checkpoint to file://, durable", ups, "cp and fsync, MB/s", copies),
        _result("checkpoint from file://, verified", downs, "cp, MB/s", reads),
    ]


def _over_s3(bench: Bench, workspace: Path, source: Path, size: int, runs: int) -> list[Result]:
    server = S3Server(workspace / "s3")
    try:
        url = server.start()
    except S3ServerError as error:
        bench.say(f"without the S3 server: {error}")
        return []
    options = ObjectOptions(url, "AKIAWINDFALLBENCH000", "for this run alone")
    puts, ups, gets, downs = [], [], [], []
    try:
        for run in range(runs):
            plain = open_objects(f"s3://windfall/plain-{run}", options)
            puts.append(_rate(size, _put_plainly, plain, source))
            objects = open_objects(f"s3://windfall/synced-{run}", options)
            ups.append(_rate(size, _up, objects, source))
            gets.append(_rate(size, _get_plainly, plain, source, workspace / "plain"))
            downs.append(_rate(size, _down, objects, workspace / "restored"))
            plain.delete([entry.key for entry in plain.list()])
            objects.delete([entry.key for entry in objects.list()])
            for place in (workspace / "plain", workspace / "restored"):
                shutil.rmtree(place)
            bench.say(f"s3://: puts {puts[-1]:.0f}, sync {ups[-1]:.0f}, restore {downs[-1]:.0f} MB/s")
    finally:
        server.stop()
    return [
        _result("checkpoint to s3:// (SeaweedFS)", ups, "plain obstore puts, MB/s", puts),
        _result("checkpoint from s3:// (SeaweedFS), verified", downs, "plain obstore gets, MB/s", gets),
    ]


def _checkpoint(directory: Path, size: int) -> int:
    """Bytes that do not compress and are not alike, as weights are."""
    directory.mkdir()
    with open(directory / "state.bin", "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(size >> 20))
    for number in range(_SMALL_FILES):
        (directory / f"part-{number}.json").write_bytes(os.urandom(4096))
    return sum(path.stat().st_size for path in directory.iterdir())


def _rate(size: int, work: Callable[..., None], *arguments: object) -> float:
    """Megabytes a second."""
    os.sync()
    begin = time.perf_counter()
    work(*arguments)
    return size / (time.perf_counter() - begin) / 1e6


def _up(objects: ObjectStore, directory: Path) -> None:
    synced = CheckpointSync(objects, str(directory), 1).flush(time.monotonic() + 600)
    if synced.alarm is not None:
        raise RuntimeError(synced.alarm)


def _down(objects: ObjectStore, directory: Path) -> None:
    CheckpointSync(objects, str(directory), 2).restore(time.monotonic() + 600)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target)


def _copy_durably(source: Path, target: Path) -> None:
    """What `cp` does, inside of the kernel, and then what makes it durable."""
    shutil.copytree(source, target)
    for path in (*target.iterdir(), target):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _put_plainly(objects: ObjectStore, source: Path) -> None:
    for path in source.iterdir():
        objects.put_file(path.name, path)


def _get_plainly(objects: ObjectStore, source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        objects.get_file(path.name, target / path.name)


def _result(name: str, values: list[float], beside: str, references: list[float]) -> Result:
    ratios = [value / reference for value, reference in zip(values, references, strict=True)]
    return Result(
        name,
        middle(values),
        "MB/s",
        middle(references),
        beside,
        middle(ratios),
        details={"runs": [round(value) for value in values], "references": [round(it) for it in references]},
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="windfall-bench-") as place:
        for result in measure(
            Bench("--quick" in sys.argv, Path(place), lambda text: print(text, flush=True))
        ):
            print(line(result))
