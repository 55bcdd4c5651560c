"""`windfall get` and `windfall checkpoints` over a real checkpoint archive that a fake daemon hands out."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.fake_daemon import Error
from windfall.agent.sync.manifests import (
    DirectoryEntry,
    FileEntry,
    LinkEntry,
    Manifest,
    Order,
    chunk_key,
    encode,
)
from windfall.cli import stored
from windfall.objects.files import FileObjects

JOB = "11111111-1111-4111-8111-111111111111"
CHUNK = 1 << 20


@dataclass
class Archive:
    """A job's prefix in a store, which the fake daemon reads."""

    root: Path
    reads: list[Any] = field(default_factory=list)
    #: How many more reads are answered before the daemon's storage is away; None for all.
    answers: int | None = None

    @property
    def objects(self) -> FileObjects:
        return FileObjects(self.root, self.root.as_uri())

    def put(self, content: bytes, prefix: str = "") -> tuple[str, ...]:
        pieces = [content[at : at + CHUNK] for at in range(0, len(content), CHUNK)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        for digest, piece in zip(digests, pieces, strict=True):
            self.objects.put(prefix + chunk_key(digest), piece)
        return tuple(digests)

    def commit(self, files: dict[str, bytes], *, step: int | None = None, seq: int = 1, **more: Any) -> str:
        entries = tuple(
            FileEntry(path, len(content), 10**18, more.get("mode", 0o644), self.put(content))
            for path, content in files.items()
        )
        directories, links = more.get("directories", ()), more.get("links", ())
        order = Order(more.get("fence", 1_000), seq)
        at = more.get("at", 2_000)
        made = Manifest(order, at, at, "newest", step, CHUNK, entries, directories, links)
        self.objects.put(order.key, encode(made))
        return order.key

    def listed(self, params: dict[str, Any]) -> bytes:
        assert params == {"jobId": JOB, "part": "checkpoint"}
        return self.lines()

    def lines(self) -> bytes:
        rows = [[entry.key, entry.bytes, entry.changed_at] for entry in self.objects.list()]
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b'{"end":true}\n'

    def read(self, params: dict[str, Any]) -> bytes | Error:
        if self.answers is not None:
            self.answers -= 1
            if self.answers < 0:
                return Error("StorageUnavailable", "the disk is not mounted.", 503)
        self.reads += params["reads"]
        assert sum(end - start for _, start, end in params["reads"]) <= 1 << 20
        try:
            return b"".join(self.objects.get_range(*one) for one in params["reads"])
        except Exception as error:  # noqa: BLE001 (whatever it is, the daemon says so)
            return Error("NotFound", str(error), 404)


@pytest.fixture
def archive(daemon, tmp_path, monkeypatch):
    made = Archive(tmp_path / "objects")
    daemon.answers |= {
        "FindJobs": {"jobIds": [JOB]},
        "ListStored": made.listed,
        "ReadStored": made.read,
        "StoredFiles": {
            "jobId": JOB,
            "jobName": "train",
            "state": "RUNNING",
            "arraySize": None,
            "checkpointUri": "file:///objects/job",
            "outputs": [],
            "logs": [],
        },
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stored, "PATIENCE_S", 0.0)
    return made


def test_a_checkpoint_becomes_plain_files(archive, windfall, tmp_path):
    large = os.urandom(3 * CHUNK + 5)
    many = {f"shards/{number}": f"shard {number}".encode() for number in range(1_000)}
    archive.commit(
        {"model.bin": large, "empty": b"", **many},
        step=1_200,
        mode=0o6755,
        links=(LinkEntry("latest", "shards/3", 10**18),),
        directories=(DirectoryEntry("shards", 0o755), DirectoryEntry("nothing", 0o755)),
    )
    ran = windfall("get", JOB)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "checkpoint  step 1,200, 1,002 files, 3.2 MB -> train/checkpoint\n"
    place = tmp_path / "train" / "checkpoint"
    assert (place / "model.bin").read_bytes() == large
    assert (place / "latest").read_text() == "shard 3"
    assert (place / "empty").read_bytes() == b""
    assert (place / "nothing").is_dir()
    assert len(list((place / "shards").iterdir())) == 1_000
    assert stat.S_IMODE((place / "model.bin").stat().st_mode) == 0o755, "without setuid and setgid"
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["checkpoint"]


def test_programs_get_a_document(archive, windfall, tmp_path):
    archive.commit({"a": b"1"}, step=7)
    [fetched] = json.loads(windfall("get", "--json", JOB).out)["fetched"]
    assert fetched == {
        "part": "checkpoint",
        "path": str(tmp_path / "train" / "checkpoint"),
        "content": "step 7, 1 file, 1 B",
    }


def test_small_files_come_together(archive, daemon, windfall):
    archive.commit({f"{number}": f"{number}".encode() for number in range(1_000)})
    assert windfall("get", JOB).code == 0
    assert len(daemon.params_of("ReadStored")) <= 6, "one for the manifest, four for the pieces"


def test_equal_content_is_fetched_once(archive, daemon, windfall, tmp_path):
    archive.commit({f"{number}": b"the same" for number in range(500)})
    assert windfall("get", JOB).code == 0
    assert len(daemon.params_of("ReadStored")) <= 2
    assert (tmp_path / "train" / "checkpoint" / "499").read_bytes() == b"the same"


def test_a_sparse_file_stays_sparse(archive, windfall, tmp_path):
    size = 10 << 30
    hole = hashlib.sha256(bytes(CHUNK)).hexdigest()
    archive.put(bytes(CHUNK))
    last = archive.put(b"end".rjust(CHUNK, b"\0"))
    pieces = (hole,) * (size // CHUNK - 1) + last
    file = FileEntry("sparse", size, 10**18, 0o644, pieces)
    archive.objects.put(Order(1, 1).key, encode(Manifest(Order(1, 1), 1, 1, "n", 1, CHUNK, (file,))))
    assert windfall("get", JOB).code == 0
    found = (tmp_path / "train" / "checkpoint" / "sparse").stat()
    assert found.st_size == size
    assert found.st_blocks * 512 < 1 << 22


def test_what_is_there_is_not_written_over(archive, windfall, tmp_path):
    archive.commit({"a": b"1"}, step=1)
    assert windfall("get", JOB).code == 0
    archive.commit({"a": b"2", "b": b"2"}, step=2, seq=2)
    own = tmp_path / "train" / "checkpoint" / "my-notes"
    own.write_text("mine")
    refused = windfall("get", JOB)
    assert refused.code == 1
    assert "train/checkpoint holds files already" in refused.err
    assert "--force" in refused.err
    assert (tmp_path / "train" / "checkpoint" / "a").read_bytes() == b"1"
    assert windfall("get", "--force", JOB).code == 0
    assert (tmp_path / "train" / "checkpoint" / "a").read_bytes() == b"2"
    assert own.read_text() == "mine"


def test_force_follows_no_link(archive, windfall, tmp_path):
    archive.commit({"sub/a": b"1"}, step=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = tmp_path / "train" / "checkpoint"
    place.mkdir(parents=True)
    (place / "sub").symlink_to(elsewhere)
    refused = windfall("get", "--force", JOB)
    assert refused.code == 1
    assert "fault of Windfall" not in refused.err
    assert list(elsewhere.iterdir()) == []
    (place / "sub").unlink()
    place.rmdir()
    place.symlink_to(elsewhere)
    assert "not a directory" in windfall("get", "--force", JOB).err
    assert list(elsewhere.iterdir()) == []


def test_another_step_is_fetched_by_name(archive, windfall, tmp_path):
    archive.commit({"a": b"1"}, step=1_000)
    archive.commit({"a": b"2"}, step=2_000, seq=2)
    for text in ("1000", "1,000"):
        assert windfall("get", "--at", text, JOB, f"at-{text}").code == 0
        assert (tmp_path / f"at-{text}" / "checkpoint" / "a").read_bytes() == b"1"
    refused = windfall("get", "--at", "3", JOB, "other")
    assert "there is no checkpoint at '3'; there are: step 2,000, step 1,000" in refused.err
    assert not (tmp_path / "other").exists()


def test_checkpoints_are_listed_with_what_they_are_worth(archive, windfall):
    archive.commit({"a": b"older"}, step=10)
    archive.commit({"a": b"late"}, step=11, seq=2, at=9_000)
    archive.commit({"a": b"newer"}, step=20, fence=5_000)
    archive.commit({"a": b"missing"}, step=21, fence=5_000, seq=2)
    archive.objects.delete([chunk_key(hashlib.sha256(b"missing").hexdigest())])
    broken = archive.commit({"a": b"x"}, step=22, fence=5_000, seq=3)
    archive.objects.put(broken, b"\x1b[2Jnonsense")
    ran = windfall("checkpoints", JOB)
    lines = [line.split() for line in ran.out.splitlines()]
    assert ran.code == 0
    assert [[*line[:2], line[-1]] for line in lines[3:6]] == [
        ["step", "20", "complete"],
        ["step", "11", "superseded"],
        ["step", "10", "complete"],
    ]
    assert "damaged" in ran.out
    assert "incomplete: 1 of 1 pieces are missing" in ran.out
    assert "\x1b" not in ran.out
    shown = json.loads(windfall("checkpoints", "--json", JOB).out)["checkpoints"]
    assert [mark["state"] for mark in shown] == [
        "damaged",
        "incomplete",
        "complete",
        "superseded",
        "complete",
    ]
    got = windfall("get", JOB)
    assert "checkpoint  step 20," in got.out
    assert "is damaged" in got.err
    assert "taking the one before it" in got.err


def test_a_piece_that_is_not_what_was_put_is_never_used(archive, windfall, tmp_path):
    archive.commit({"a": b"right"}, step=1)
    archive.commit({"a": b"wrong"}, step=2, seq=2)
    archive.objects.put(chunk_key(hashlib.sha256(b"wrong").hexdigest()), b"WRONG")
    ran = windfall("get", JOB)
    assert ran.code == 0
    assert "step 2 cannot be used" in ran.err
    assert (tmp_path / "train" / "checkpoint" / "a").read_bytes() == b"right"
    refused = windfall("get", "--at", "2", JOB, "other")
    assert refused.code == 1
    assert "the checkpoint is damaged" in refused.err
    assert not (tmp_path / "other" / "checkpoint").exists()


@pytest.mark.parametrize(
    "body",
    [
        {"files": [["../evil", 1, 0, 0o644, ["0" * 64]]]},
        {"files": [["/tmp/evil", 1, 0, 0o644, ["0" * 64]]]},
        {"files": [["a/../../evil", 1, 0, 0o644, ["0" * 64]]]},
        {"files": [["\ud800", 0, 0, 0o644, []]]},
        {"files": [["a", -1, 0, 0o644, []]]},
        {"files": [["a", 1, 10**40, 0o644, ["0" * 64]]]},
        {"files": [["a", 10**17, 0, 0o644, ["0" * 64]]], "chunk_bytes": 10**17},
        {"files": [["a", 1, 0, 0o644, ["../../evil"]]]},
        {"directories": [["../evil", 0o755]]},
        {"links": [["a", "/etc", 0]]},
        {"links": [["a", "../evil", 0]]},
        {"links": [["a", "\ud800", 0]]},
        {"links": [["a", "b", 0]], "files": [["a/x", 0, 0, 0o644, []]]},
        {"at": "soon"},
        {"files": 7},
    ],
)
def test_a_hostile_manifest_leads_nowhere(archive, windfall, tmp_path, body):
    archive.objects.put(Order(1, 1).key, forged(body))
    archive.objects.put(chunk_key("0" * 64), b"x")
    before = sorted(path for path in tmp_path.rglob("*") if "objects" not in path.parts)
    ran = windfall("get", JOB)
    assert ran.code == 1
    assert "fault of Windfall" not in ran.err
    assert "none of the job's checkpoints can be used" in ran.err
    assert sorted(path for path in tmp_path.rglob("*") if "objects" not in path.parts) == before
    assert windfall("checkpoints", JOB).code == 0


@pytest.mark.parametrize(
    "files",
    [
        [["a", 0, 0, 0o644, []], ["a/b", 0, 0, 0o644, []]],
        [["x" * 300, 0, 0, 0o644, []]],
    ],
)
def test_files_that_cannot_be_are_one_line_of_error(archive, windfall, tmp_path, files):
    archive.objects.put(Order(1, 1).key, forged({"files": files, "step": 10**30, "at": 10**30}))
    ran = windfall("get", JOB)
    assert ran.code == 1
    assert not (tmp_path / "train" / "checkpoint").exists()
    assert "fault of Windfall" not in ran.err
    assert windfall("checkpoints", JOB).code == 0


def test_a_hostile_name_does_not_steer_the_terminal(archive, windfall):
    archive.objects.put(Order(1, 1).key, forged({"step": None, "at": 10**400}))
    ran = windfall("get", JOB)
    assert ran.code == 0
    assert "\x1b" not in ran.out
    listed = windfall("checkpoints", JOB)
    assert listed.code == 0
    assert "\x1b" not in listed.out
    archive.objects.put(Order(1, 1).key, forged({"name": "x\nwindfall: all is well"}))
    refused = windfall("get", "--at", "3", JOB, "other")
    assert len(refused.err.splitlines()) == 1, "it does not begin a line of its own"


def test_an_empty_step_does_not_mean_any(archive, windfall, tmp_path):
    archive.commit({"a": b"1"}, step=1_000)
    for text in ("", " "):
        refused = windfall("get", "--at", text, JOB, "other")
        assert refused.code == 2
        assert "--at is empty" in refused.err
    assert not (tmp_path / "other").exists()


def forged(body: dict[str, Any]) -> bytes:
    """A manifest that says anything, with the digest that it must have."""
    plain = {
        "version": 1,
        "fence": 1,
        "seq": 1,
        "at": 1,
        "state_at": 1,
        "name": "\x1b]0;evil\x07",
        "step": None,
        "chunk_bytes": CHUNK,
        "directories": [],
        "files": [],
        **body,
    }
    text = json.dumps(plain, separators=(",", ":"))
    return f'{text[:-1]},"digest":"{hashlib.sha256(text.encode()).hexdigest()}"}}'.encode()


def test_an_interrupted_call_goes_on_where_it_stopped(archive, daemon, windfall, tmp_path):
    content = os.urandom(8 * CHUNK)
    archive.commit({"model": content})
    archive.answers = 4
    refused = windfall("get", JOB)
    assert refused.code == 1
    assert "the disk is not mounted" in refused.err
    assert not (tmp_path / "train" / "checkpoint").exists()
    brought = {key for key, _, _ in archive.reads if "chunks" in key}
    assert brought
    archive.answers, archive.reads = None, []
    assert windfall("get", JOB).code == 0
    assert (tmp_path / "train" / "checkpoint" / "model").read_bytes() == content
    again = {key for key, _, _ in archive.reads if "chunks" in key}
    assert len(again) < 8, "what was written by the first call is not asked for again"
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["checkpoint"]


def test_a_storage_that_comes_back_is_waited_for(archive, daemon, windfall, monkeypatch, tmp_path):
    monkeypatch.setattr(stored, "PATIENCE_S", 60.0)
    archive.commit({"a": b"1"})
    refusals = iter([Error("StorageUnavailable", "The disk is not mounted.", 503)] * 2)
    daemon.answers["ReadStored"] = lambda params: next(refusals, None) or archive.read(params)
    ran = windfall("get", JOB)
    assert ran.code == 0
    assert ran.err.count("The disk is not mounted; trying again") == 1
    assert (tmp_path / "train" / "checkpoint" / "a").read_bytes() == b"1"


def test_ctrl_c_ends_a_wait_at_once(archive, daemon, tmp_path):
    archive.commit({"a": b"1"})
    away = threading.Event()

    def refuse(_params: Any) -> Error:
        away.set()
        return Error("StorageUnavailable", "The disk is not mounted.", 503)

    daemon.answers["ReadStored"] = refuse
    command = [sys.executable, "-m", "windfall.cli", "get", JOB]
    waiting = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert away.wait(60), "it asks for a piece"
        waiting.send_signal(signal.SIGINT)
        # Less than it would wait for the storage.
        _, said = waiting.communicate(timeout=100)
    finally:
        waiting.kill()
    assert waiting.returncode == 130
    assert "Traceback" not in said


def test_a_listing_that_breaks_off_is_not_taken_for_whole(archive, daemon, windfall):
    archive.commit({"a": b"1"})
    whole = archive.listed({"jobId": JOB, "part": "checkpoint"})
    daemon.answers["ListStored"] = whole.removesuffix(b'{"end":true}\n')
    assert windfall("get", JOB).code == 1
    daemon.answers["ListStored"] = whole.replace(b'{"end":true}', b'{"error":"the store is away."}')
    assert "the store is away" in windfall("get", JOB).err


def test_the_files_of_several_nodes_are_one_directory(archive, windfall, tmp_path):
    archive.commit({"rank-0": b"0"}, step=5)
    own = archive.put(b"1", prefix="")
    digest = hashlib.sha256(b"1").hexdigest()
    archive.objects.put(f".windfall/writers/1/chunks/{digest[:2]}/{digest}", b"1")
    file = FileEntry("rank-1", 1, 10**18, 0o644, own)
    made = encode(Manifest(Order(1_000, 1), 2_000, 2_000, "n", 5, CHUNK, (file,)))
    archive.objects.put(f".windfall/writers/1/{Order(1_000, 1).key.removeprefix('.windfall/')}", made)
    assert windfall("get", JOB).code == 0
    found = sorted(path.name for path in (tmp_path / "train" / "checkpoint").iterdir())
    assert found == ["rank-0", "rank-1"]
    listed = windfall("checkpoints", JOB).out
    assert "NODE" in listed


def test_what_a_job_does_not_have_is_said(archive, daemon, windfall):
    nothing = windfall("get", JOB)
    assert nothing.code == 1
    assert "has nothing to fetch yet" in nothing.err
    assert "has saved no checkpoint yet" in windfall("checkpoints", JOB).err
    daemon.answers["StoredFiles"] |= {"state": "FAILED"}
    assert "is FAILED and has nothing to fetch; see" in windfall("get", JOB).err
    daemon.answers["StoredFiles"] |= {"state": "RUNNING"}
    daemon.answers["StoredFiles"] |= {"checkpointUri": None}
    assert "keeps no checkpoints" in windfall("checkpoints", JOB).err
    assert "keeps no checkpoints" in windfall("get", "--only", "checkpoint", JOB).err
    assert "keeps no checkpoints" in windfall("get", "--at", "4", JOB).err
    assert "no outputs" in windfall("get", "--only", "outputs", JOB).err
    daemon.answers["StoredFiles"] |= {"arraySize": 3}
    assert f"name one, such as {JOB}:0" in windfall("checkpoints", JOB).err


class TestOutputs:
    """An output is fetched as it is stored."""

    @pytest.fixture
    def output(self, archive, daemon):
        def offer(name: str, *, archived: bool) -> FileObjects:
            daemon.answers["StoredFiles"] |= {
                "checkpointUri": None,
                "outputs": [{"name": name, "isArchive": archived}],
            }
            daemon.answers["ListStored"] = lambda _: archive.lines()
            return archive.objects

        return offer

    def test_an_archive_stays_one_and_goes_on_where_it_stopped(self, archive, output, windfall, tmp_path):
        content = os.urandom((20 << 20) + 7)
        output("model.tar.gz", archived=True).put("model.tar.gz", content)
        archive.answers = 12
        assert windfall("get", JOB).code == 1
        archive.answers, archive.reads = None, []
        ran = windfall("get", JOB)
        assert ran.out == "outputs     model.tar.gz (21.0 MB, unpack it with `tar -xzf`) -> train/outputs\n"
        assert (tmp_path / "train" / "outputs" / "model.tar.gz").read_bytes() == content
        assert len(archive.reads) < 21
        assert [path.name for path in (tmp_path / "train" / "outputs").iterdir()] == ["model.tar.gz"]

    def test_plain_files_stay_plain(self, output, windfall, tmp_path):
        store = output("model", archived=False)
        store.put("a/large", bytes(range(256)) * 8_192)
        for number in range(600):
            store.put(f"small/{number}", f"{number}".encode())
        assert windfall("get", JOB).code == 0
        place = tmp_path / "train" / "outputs" / "model"
        assert (place / "a" / "large").read_bytes() == bytes(range(256)) * 8_192
        assert sorted(int(path.read_text()) for path in (place / "small").iterdir()) == list(range(600))

    @pytest.mark.parametrize("name", ["..", ".", "a\0b", ""])
    def test_its_name_leads_nowhere(self, output, windfall, tmp_path, name):
        output(name, archived=True).put("x", b"1")
        ran = windfall("get", JOB)
        assert ran.code == 0, ran.err
        assert (tmp_path / "train" / "outputs" / "output-0").read_bytes() == b"1"
