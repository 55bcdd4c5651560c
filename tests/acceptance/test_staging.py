"""Staged attempts with real processes: what is brought, what is kept, what is taken, and every death in between."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_agent import House, is_alive, launched, needs_root, public_python, sandbox_or_skip
from tests.conftest import require_part
from tests.waiting import wait_until
from windfall.agent.messages import (
    Exited,
    Forget,
    Interrupt,
    Lost,
    Progressed,
    Refused,
    Start,
    Stop,
)
from windfall.agent.processes import attempt_token, snapshot
from windfall.jobs.staging import (
    Archive,
    Channel,
    Checkpoints,
    GitSource,
    Output,
    Staging,
    TextFile,
)
from windfall.jobs.storage import StorageAccess

FENCE = 1_700_000_000_000


@pytest.fixture(params=["sandbox", "process"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """An agent with bubblewrap where there is one, and one without."""
    with launched(tmp_path / "house", use_sandbox=request.param == "sandbox") as built:
        if request.param == "sandbox":
            sandbox_or_skip(built.daemon())
        yield built


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "plain", use_sandbox=False) as built:
        yield built


def store_of(house: House) -> str:
    return f"file://{house.root}/store"


def kept(house: House, name: str = "job", **fields: object) -> Staging:
    return Staging(checkpoints=Checkpoints(f"{store_of(house)}/{name}"), **fields)  # type: ignore[arg-type]  # any field


def staged(
    house: House, token: str, script: str, staging: Staging, fence: int = FENCE, **fields: object
) -> Start:
    return house.shell(token, script, staging=staging, fence=fence, **fields)


def in_seconds(seconds: float) -> int:
    return int(1000 * (time.time() + seconds))


def inside(house: House, token: str) -> Path:
    """What the job sees at /opt/ml, as the host sees it."""
    return house.root / "attempts" / f"{token}.ml"


def courier_of(agent_pid: int) -> int | None:
    """The pid of an agent's courier, when there is one."""
    for pid, stat in snapshot().items():
        if stat.ppid == agent_pid:
            with contextlib.suppress(OSError):
                if b"windfall.agent.courier\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
    return None


def ready(house: House, token: str) -> Callable[[], bool]:
    log = house.logs / f"{token}.log"
    return lambda: log.exists() and "ready" in log.read_text()


WAITS = "echo ready; while :; do sleep 0.05; done"


def test_what_a_job_wrote_is_back_for_the_next_attempt_byte_for_byte(house: House):
    daemon = house.daemon()
    script = (
        'cd "$WINDFALL_CHECKPOINT_DIR"; head -c 3000000 /dev/urandom > weights; mkdir deep; echo 17 > deep/step; '
        "sha256sum weights deep/step; " + WAITS
    )
    daemon.send(staged(house, "a", script, kept(house)))
    started = daemon.started("a")
    assert started.prepared_at is not None
    assert started.prepared_at <= started.at
    wait_until(ready(house, "a"), "the files are written")
    daemon.send(Interrupt("a", in_seconds(3), "for a test"))
    first = daemon.exited("a")
    assert first.exit_code == 143
    assert first.checkpoint is not None
    assert first.exited_at is not None
    assert first.exited_at <= first.at
    sums = house.log("a").split("ready")[0]
    again = "cd $WINDFALL_CHECKPOINT_DIR; sha256sum weights deep/step; touch mine && rm weights && echo owned"
    daemon.send(staged(house, "b", again, kept(house), FENCE + 1))
    second = daemon.exited("b")
    assert (second.exit_code, house.log("b")) == (0, sums + "owned\n")
    news = [
        m for m in daemon.heard if isinstance(m, Progressed) and m.token == "b" and m.restored is not None
    ]
    assert news
    assert news[0].restored == first.checkpoint


# --- what a job sees --------------------------------------------------------------------------------


def test_a_job_finds_its_files_where_it_is_told(house: House):
    daemon = house.daemon()
    staging = kept(
        house,
        files=(TextFile("/opt/ml/input/config/hyperparameters.json", '{"dir": "/opt/ml/model"}'),),
        directories=("/opt/ml/model", "/opt/ml/output/data"),
        wants_ml_root=True,
    )
    script = (
        'cat "$1/input/config/hyperparameters.json"; echo; ls "$1"; touch "$1/model/weights"; '
        'env | grep -E "^(WINDFALL|SAGEMAKER|MODEL|AWS_EC2)" | sort; pwd; ls -d /opt/*'
    )
    start = house.start(
        "a",
        "/bin/sh",
        "-c",
        script,
        "sh",
        "/opt/ml",
        staging=staging,
        fence=FENCE,
        environment={"MODEL": "/opt/ml/model"},
    )
    daemon.send(start)
    exited = daemon.exited("a")
    assert exited.exit_code == 0, house.log("a")
    sandboxed = exited.isolation.startswith("bubblewrap")
    root = "/opt/ml" if sandboxed else f"{house.root}/attempts/a.ml"
    lines = house.log("a").splitlines()
    assert lines[0] == f'{{"dir": "{root}/model"}}'
    assert lines[1:5] == ["checkpoints", "input", "model", "output"]
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["MODEL"] == f"{root}/model"
    assert seen["WINDFALL_CHECKPOINT_DIR"] == f"{root}/checkpoints"
    assert seen["WINDFALL_NOTICE_FILE"].startswith(f"{root}/")
    assert seen["WINDFALL_PROGRESS_FILE"].startswith(f"{root}/")
    assert seen["AWS_EC2_METADATA_SERVICE_ENDPOINT"].startswith("http://127.0.0.1:")
    assert not Path("/opt/ml").exists(), "nothing of it may appear on the host"
    beside = {line for line in lines if line.startswith("/opt/") and "=" not in line}
    assert beside >= {str(path) for path in Path("/opt").iterdir()}
    if sandboxed:
        assert "/opt/ml" in beside
        assert "SAGEMAKER_BASE_DIR" not in seen
    else:
        assert seen["SAGEMAKER_BASE_DIR"] == root
        assert exited.isolation.startswith(f"process (no sandbox: /opt/ml is {root})")
    assert (inside(house, "a") / "model" / "weights").exists()
    daemon.send(Forget(["a"]))
    wait_until(lambda: not inside(house, "a").exists(), "what was staged is gone")


def test_a_checkpoint_directory_may_be_anywhere_but_in_the_system(house: House):
    daemon = house.daemon()
    nowhere = "/nowhere-on-this-host/deep/checkpoints"
    elsewhere = Staging(checkpoints=Checkpoints(f"{store_of(house)}/job", nowhere))
    script = 'echo text > "$0/file"; ls -d /usr /etc/passwd; cat "$0/file"'
    start = house.start("a", "/bin/sh", "-c", script, nowhere, staging=elsewhere, fence=FENCE)
    system = Staging(checkpoints=Checkpoints(f"{store_of(house)}/job", "/usr/bin"))
    daemon.send(start, staged(house, "b", "true", system))
    exited = daemon.exited("a")
    assert (exited.exit_code, house.log("a")) == (0, "/etc/passwd\n/usr\ntext\n")
    assert exited.checkpoint is not None
    assert not Path("/nowhere-on-this-host").exists()
    result = daemon.result("b")
    if exited.isolation.startswith("bubblewrap"):
        assert isinstance(result, Refused)
        assert "belongs to the system" in result.reason
    else:
        assert isinstance(result, Exited)


@needs_root
def test_a_job_cannot_lead_the_courier_out_of_its_directories(plain: House):
    daemon = plain.daemon()
    secret = plain.root / "secret"
    secret.mkdir(mode=0o700)
    (secret / "key").write_text("hidden")
    uri = f"{store_of(plain)}/model.tar.gz"
    staging = kept(plain, outputs=(Output("/opt/ml/model", uri),), failure_path="/opt/ml/output/failure")
    root = f"{plain.root}/attempts/a.ml"
    script = (
        f"cd {root}; ln -s {secret}/key model/key; ln -s {secret} model/all; ln -s {secret}/key output/failure; "
        f"ln -s {secret}/key checkpoints/key; mv model elsewhere; mv checkpoints elsewhere; "
        "mv .windfall elsewhere; touch .windfall/notice.json; exit 3"
    )
    daemon.send(staged(plain, "a", script, staging))
    exited = daemon.exited("a")
    assert exited.exit_code == 3
    assert exited.failure is None
    assert plain.log("a").count("cannot") == 4, plain.log("a")
    with tarfile.open(plain.root / "store" / "model.tar.gz") as archive:
        assert {member.name: member.issym() for member in archive} == {"all": True, "key": True}
    stored = [path.read_bytes() for path in (plain.root / "store").rglob("*") if path.is_file()]
    assert not any(b"hidden" in content for content in stored)


# --- what is brought --------------------------------------------------------------------------------


def a_tar(path: Path, **files: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/") + ".txt")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content.encode()))


def test_code_and_channels_are_there_before_the_process_starts(house: House):
    store = house.root / "store"
    for name, content in {"train/a.csv": "1", "train/deep/b.csv": "2", "one.csv": "3", "list/x": "4"}.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(content)
    (store / "manifest").write_text(json.dumps([{"prefix": "s3://train/"}, "a.csv", "deep/b.csv"]))
    a_tar(store / "code.tar.gz", main="print", package__module="deep")
    uri = store_of(house)
    staging = Staging(
        archives=(Archive(f"{uri}/code.tar.gz", "/opt/ml/code"),),
        channels=(
            Channel("train", f"{uri}/train"),
            Channel("single", f"{uri}/one.csv", mode="FastFile"),
            Channel("listed", f"{uri}/manifest", kind="ManifestFile"),
        ),
        wants_ml_root=True,
    )
    daemon = house.daemon()
    daemon.send(
        house.shell(
            "a",
            "pwd; find . -type f | sort; cd ../input/data; find . -type f | sort; cat train/deep/b.csv; touch train/n",
            staging=staging,
            directory="/opt/ml/code",
            storage=StorageAccess(bucket_root=uri),
        )
    )
    assert daemon.exited("a").exit_code == 0, house.log("a")
    lines = house.log("a").split()
    assert lines[0].endswith(("/opt/ml/code", "a.ml/code"))
    assert lines[1:] == [
        *("./main.txt", "./package/module.txt"),
        *(
            "./listed/a.csv",
            "./listed/deep/b.csv",
            "./single/one.csv",
            "./train/a.csv",
            "./train/deep/b.csv",
            "2",
        ),
    ]


def refusals(house: House, cases: dict[str, Staging]) -> dict[str, str]:
    """Why each of these is refused."""
    daemon = house.daemon()
    daemon.send(*(staged(house, token, "true", staging) for token, staging in cases.items()))
    words = {}
    for token in cases:
        result = daemon.result(token)
        assert isinstance(result, Refused), result
        words[token] = result.reason.removeprefix("CannotStartContainerError: ")
    return words


def test_what_cannot_be_brought_refuses_the_attempt_and_says_what_is_missing(plain: House):
    uri = store_of(plain)
    (plain.root / "store").mkdir()
    with tarfile.open(plain.root / "store" / "evil.tar", "w") as archive:
        entry = tarfile.TarInfo("../../escape")
        archive.addfile(entry, io.BytesIO())
    cases = {
        "channel": Staging(channels=(Channel("train", f"{uri}/nothing"),)),
        "archive": Staging(archives=(Archive(f"{uri}/none.tar.gz", "/opt/ml/code"),)),
        "evil": Staging(archives=(Archive(f"{uri}/evil.tar", "/opt/ml/code"),)),
        "outside": Staging(files=(TextFile("/etc/cron.d/job", "x"),)),
        "scheme": Staging(checkpoints=Checkpoints("ftp://host/x")),
    }
    words = refusals(plain, cases)
    assert "no objects are found under" in words["channel"]
    assert words["archive"].startswith(f"there is no {uri}/none.tar.gz")
    assert "leads out of its directory" in words["evil"]
    assert "/etc/cron.d/job is not below /opt/ml" in words["outside"]
    assert "ftp://host/x" in words["scheme"]


def test_what_git_must_not_be_given_refuses_the_attempt(plain: House):
    require_part(shutil.which("git") is not None, "git is not installed")
    cases = {
        "option": Staging(git=GitSource("--upload-pack=touch", "main")),
        "transport": Staging(git=GitSource("ext::sh -c touch", "main")),
        "revision": Staging(git=GitSource("file:///repo", "--help")),
    }
    words = refusals(plain, cases)
    assert "is not a repository" in words["option"]
    assert "is not a repository" in words["transport"]
    assert "is not a revision" in words["revision"]


def git(repository: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(repository)}
    done = subprocess.run(
        ["git", *identity, "-C", str(repository), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_code_from_git_is_a_fresh_checkout_at_the_exact_commit(house: House):
    require_part(shutil.which("git") is not None, "git is not installed")
    repository = house.root / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    commits = []
    for text in ("first", "second"):
        (repository / "file").write_text(text + "\n")
        git(repository, "add", "file")
        git(repository, "commit", "--quiet", "-m", text)
        commits.append(git(repository, "rev-parse", "HEAD"))
    git(repository, "tag", "v1", commits[0])
    daemon = house.daemon()
    url = f"file://{repository}"
    for token, revision in {"branch": "main", "tag": "v1", "exact": commits[0], "none": "missing"}.items():
        daemon.send(
            staged(house, token, "cat file; touch mine; id -u > uid", Staging(git=GitSource(url, revision)))
        )
    for token, text, commit in (
        ("branch", "second", commits[1]),
        ("tag", "first", commits[0]),
        ("exact", "first", commits[0]),
    ):
        assert daemon.exited(token).exit_code == 0, house.log(token)
        assert house.log(token) == f"{text}\n"
        assert any(
            isinstance(m, Progressed) and m.token == token and m.commit == commit for m in daemon.heard
        )
    refused = daemon.result("none")
    assert isinstance(refused, Refused)
    assert "has no revision missing" in refused.reason


# --- pipes ------------------------------------------------------------------------------------------


def test_pipes_are_fed_epoch_by_epoch_whoever_dies_meanwhile(house: House):
    store = house.root / "store" / "train"
    store.mkdir(parents=True)
    parts = [os.urandom(3 << 20) for _ in range(2)]
    for number, part in enumerate(parts):
        (store / f"{number}.gz").write_bytes(gzip.compress(part, 1))
    staging = Staging(
        channels=(Channel("train", f"{store_of(house)}/train", "Pipe", compression="Gzip"),),
        wants_ml_root=True,
    )
    reader = (
        "import hashlib, os, sys, time\n"
        "base = sys.argv[1] + '/input/data/train_'\n"
        "for epoch in range(2):\n"
        "    with open(base + str(epoch), 'rb') as pipe:\n"
        "        content = pipe.read(1 << 20)\n"
        "        print('ready', flush=True)\n"
        "        while not os.path.exists(sys.argv[1] + '/go'): time.sleep(0.02)\n"
        "        content += pipe.read()\n"
        "    print(hashlib.sha256(content).hexdigest(), flush=True)\n"
    )
    daemon = house.daemon()
    start = house.start("a", public_python(), "-c", reader, "/opt/ml", staging=staging)
    daemon.send(start)
    wait_until(ready(house, "a"), "the first pipe is being read")
    courier = courier_of(daemon.inventory.agent_pid)
    assert courier is not None
    os.kill(courier, signal.SIGKILL)
    wait_until(lambda: courier_of(daemon.inventory.agent_pid) not in (None, courier), "a new courier")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon.close()
    again = house.daemon()
    (inside(house, "a") / "go").touch()
    assert again.exited("a").exit_code == 0, house.log("a")
    whole = hashlib.sha256(b"".join(parts)).hexdigest()
    assert [line for line in house.log("a").split() if line != "ready"] == [whole, whole]
    wait_until(lambda: not feeders(house), "the feeder has gone with the attempt")


def test_a_pipe_that_cannot_be_fed_fails_the_job_instead_of_ending_early(plain: House):
    store = plain.root / "store" / "train"
    store.mkdir(parents=True)
    (store / "b").write_bytes(b"not gzip" * 100)
    (store / "a").write_bytes(gzip.compress(b"fine"))
    channel = Channel("train", f"{store_of(plain)}/train", "Pipe", compression="Gzip")
    daemon = plain.daemon()
    daemon.send(
        staged(plain, "a", "cat /opt/ml/input/data/train_0; echo took it", Staging(channels=(channel,)))
    )
    exited = daemon.exited("a")
    assert exited.exit_code == 137
    assert exited.failure is not None
    assert exited.failure.startswith("Data download failed for channel train: ")
    assert plain.log("a") == "fine"


def feeders(house: House) -> list[int]:
    return [pid for pid in snapshot() if attempt_token(pid, house.settings.agent_id) is not None]


# --- what is taken ----------------------------------------------------------------------------------


def test_outputs_are_stored_when_a_job_has_ended_by_itself(house: House):
    uri = store_of(house)
    outputs = (
        Output("/opt/ml/model", f"{uri}/model.tar.gz", when_failed=False),
        Output("/opt/ml/output/data", f"{uri}/data", archived=False),
    )
    staging = Staging(outputs=outputs, failure_path="/opt/ml/output/failure", wants_ml_root=True)
    script = (
        'cd "$0"; mkdir -p model/deep; echo weights > model/deep/w; ln -s deep/w model/link; echo x > output/data/x; '
        "printf '%2000s' why > output/failure; [ $1 = wait ] && { " + WAITS + "; }; exit $1"
    )

    def start(token: str, code: str) -> Start:
        return house.start(token, "/bin/sh", "-c", script, "/opt/ml", code, staging=staging)

    daemon = house.daemon()
    store = house.root / "store"
    daemon.send(start("failed", "5"))
    failed = daemon.exited("failed")
    assert (failed.exit_code, failed.failure) == (5, " " * 1024)
    assert not (store / "model.tar.gz").exists()
    assert (store / "data" / "x").read_text() == "x\n"
    shutil.rmtree(store)
    daemon.send(start("interrupted", "wait"))
    wait_until(ready(house, "interrupted"), "it runs")
    daemon.send(Interrupt("interrupted", in_seconds(2), ""))
    daemon.exited("interrupted")
    assert not store.exists()
    daemon.send(start("good", "0"))
    good = daemon.exited("good")
    assert (good.exit_code, good.failure) == (0, None)
    with tarfile.open(store / "model.tar.gz") as archive:
        content = archive.extractfile("deep/w")
        assert content is not None
        assert content.read() == b"weights\n"
        assert archive.getmember("link").linkname == "deep/w"


def test_outputs_that_could_not_be_stored_are_kept_and_stored_later_whoever_dies(plain: House):
    """The job fails with the reason, and nothing of what it left is removed before it is in the store."""
    output = Output("/opt/ml/model", f"{store_of(plain)}/models/model.tar.gz")
    script = "echo weights > /opt/ml/model/w; " + WAITS.replace("while :", "while [ ! -e /opt/ml/model/go ]")
    daemon = plain.daemon()
    daemon.send(staged(plain, "a", script, Staging(outputs=(output,))))
    wait_until(ready(plain, "a"), "it runs")
    (plain.root / "store").mkdir(exist_ok=True)
    obstacle = plain.root / "store" / "models"
    obstacle.write_text("a file where the directory should be")
    (inside(plain, "a") / "model" / "go").touch()
    exited = daemon.exited("a")
    assert exited.exit_code == 0
    assert exited.reason is not None
    assert exited.reason.startswith(f"Artifact upload failed: {output.uri}: ")
    daemon.send(Forget(["a"]))
    agent = daemon.inventory.agent_pid
    daemon.close()
    os.kill(agent, signal.SIGKILL)
    daemon = plain.daemon()
    assert daemon.inventory.agent_pid != agent
    assert (inside(plain, "a") / "model" / "w").read_text() == "weights\n"
    obstacle.unlink()
    wait_until((obstacle / "model.tar.gz").exists, "it is stored")
    with tarfile.open(obstacle / "model.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["go", "w"]
    wait_until(lambda: not inside(plain, "a").exists(), "what is stored is removed")


def test_a_last_checkpoint_that_could_not_be_stored_is_kept_and_stored_later(plain: House):
    daemon = plain.daemon()
    script = 'cd "$WINDFALL_CHECKPOINT_DIR"; trap "echo last > state; exit 0" TERM; ' + WAITS
    daemon.send(staged(plain, "a", script, kept(plain)))
    wait_until(ready(plain, "a"), "it runs")
    store = plain.root / "store"
    store.rename(plain.root / "away")
    store.write_text("a file where the directory should be")
    daemon.send(Stop("a", 5.0, save_within_s=1.0))
    exited = daemon.exited("a")
    assert exited.exit_code == 0
    assert exited.reason is not None
    assert exited.reason.startswith(f"Artifact upload failed: {store_of(plain)}/job: the last checkpoint: ")
    daemon.send(Forget(["a"]))
    agent = daemon.inventory.agent_pid
    daemon.close()
    os.kill(agent, signal.SIGKILL)
    daemon = plain.daemon()
    assert (inside(plain, "a") / "checkpoints" / "state").read_text() == "last\n"
    store.unlink()
    (plain.root / "away").rename(store)
    wait_until(lambda: not inside(plain, "a").exists(), "what is stored is removed")
    daemon.send(staged(plain, "b", 'cat "$WINDFALL_CHECKPOINT_DIR"/state', kept(plain), FENCE + 1))
    daemon.exited("b")
    assert plain.log("b") == "last\n"


def test_a_terminated_job_does_not_hold_its_place_while_the_store_is_away(plain: House):
    output = Output("/opt/ml/model", f"{store_of(plain)}/models/model.tar.gz")
    daemon = plain.daemon()
    daemon.send(staged(plain, "a", "trap 'exit 0' TERM; " + WAITS, Staging(outputs=(output,))))
    wait_until(ready(plain, "a"), "it runs")
    (plain.root / "store").mkdir(exist_ok=True)
    (plain.root / "store" / "models").write_text("a file where the directory should be")
    daemon.send(Stop("a", 5.0, save_within_s=5.0, gives_up=True))
    assert daemon.exited("a").reason is None
    daemon.send(Forget(["a"]))
    wait_until(lambda: not inside(plain, "a").exists(), "nobody wants it")


def test_a_lost_host_saves_nothing_more(house: House):
    daemon = house.daemon()
    script = 'cd "$WINDFALL_CHECKPOINT_DIR"; echo 1 > one; ' + WAITS
    daemon.send(staged(house, "a", script, kept(house)))
    daemon.until(lambda m: isinstance(m, Progressed) and m.checkpoint is not None)
    courier = courier_of(daemon.inventory.agent_pid)
    assert courier is not None
    os.kill(courier, signal.SIGSTOP)  # What is written now is not seen before the host is lost.
    (inside(house, "a") / "checkpoints" / "two").write_text("2")
    daemon.send(Stop("a", 0.0, lose=True))
    wait_until(lambda: not is_alive(daemon.started("a").pid), "it is killed")
    os.kill(courier, signal.SIGCONT)
    exited = daemon.exited("a")
    assert exited.exit_code == 137
    daemon.send(staged(house, "b", "ls $WINDFALL_CHECKPOINT_DIR", kept(house), FENCE + 1))
    daemon.exited("b")
    assert house.log("b").split() == ["one"]


# --- death ------------------------------------------------------------------------------------------


def journal_has(house: House, tag: str) -> Callable[[], bool]:
    return lambda: f'["{tag}",'.encode() in (house.root / "agent" / "journal").read_bytes()


Gated = tuple[House, Staging, Callable[[], None]]


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Gated]:
    """An attempt that cannot be prepared before the gate is opened: the disk with its code is not mounted."""
    root = tmp_path / "gated"
    unmounted = root / "unmounted"
    unmounted.mkdir(parents=True)
    a_tar(unmounted / "code.tar.gz", main="hello")
    variables = root / "objects.json"
    variables.write_text(json.dumps({"WINDFALL_OBJECTS_ROOT": f"{root}/store"}))
    house = House(root, use_sandbox=False, objects_file=str(variables)).launch()
    staging = Staging(archives=(Archive(f"{store_of(house)}/code.tar.gz", "/opt/ml/code"),))
    yield house, staging, lambda: unmounted.rename(root / "store") and None
    house.close()


@pytest.mark.parametrize("victim", ["agent", "courier"])
def test_a_death_while_things_are_brought_begins_anew(gated: Gated, victim: str):
    house, staging, open_gate = gated
    daemon = house.daemon()
    start = staged(house, "a", "echo run; cat /opt/ml/code/main.txt", staging)
    daemon.send(start)
    agent = daemon.inventory.agent_pid
    courier = wait_until(lambda: courier_of(agent), "the courier works")
    daemon.until(lambda m: isinstance(m, Progressed) and m.doing == "unpacking code")
    os.kill(courier if victim == "courier" else agent, signal.SIGKILL)
    if victim == "agent":
        daemon.close()
        daemon = house.daemon()
        assert [(s.token, s.state) for s in daemon.inventory.attempts] == [("a", "starting")]
        daemon.send(start)
    wait_until(lambda: courier_of(daemon.inventory.agent_pid) not in (None, courier), "a new courier")
    open_gate()
    assert daemon.exited("a").exit_code == 0
    assert house.log("a") == "run\nhello"


@pytest.mark.parametrize("request_", [Stop("a", 1.0), Interrupt("a", 0, "now")], ids=["stop", "interrupt"])
def test_what_is_being_prepared_can_be_ended_at_once(gated: Gated, request_: Stop | Interrupt):
    house, staging, open_gate = gated
    daemon = house.daemon()
    daemon.send(staged(house, "a", "echo run", staging))
    daemon.until(lambda m: isinstance(m, Progressed) and m.doing == "unpacking code")
    daemon.send(request_)
    result = daemon.result("a")
    assert isinstance(result, Refused)
    daemon.send(Forget(["a"]))
    open_gate()
    wait_until(lambda: not inside(house, "a").exists(), "nothing is left of it")
    assert not (house.logs / "a.log").exists()


@pytest.mark.parametrize("victims", [("agent",), ("courier",), ("courier", "agent")], ids="+".join)
def test_a_death_while_it_runs_loses_no_checkpoint(house: House, victims: tuple[str, ...]):
    daemon = house.daemon()
    script = (
        'cd "$WINDFALL_CHECKPOINT_DIR"; echo 1 > one; '
        "while [ ! -e ../go ]; do sleep 0.05; done; echo 2 > two; " + WAITS
    )
    daemon.send(staged(house, "a", script, kept(house)))
    daemon.until(lambda m: isinstance(m, Progressed) and m.checkpoint is not None)
    agent = daemon.inventory.agent_pid
    courier = courier_of(agent)
    assert courier is not None
    for victim in victims:
        os.kill(courier if victim == "courier" else agent, signal.SIGKILL)
    if "agent" in victims:
        daemon.close()
        daemon = house.daemon()
    wait_until(lambda: courier_of(daemon.inventory.agent_pid) not in (None, courier), "a new courier")
    daemon.heard.clear()
    (inside(house, "a") / "go").touch()
    daemon.until(
        lambda m: isinstance(m, Progressed) and m.checkpoint is not None and m.checkpoint.name == "two"
    )
    daemon.send(Interrupt("a", in_seconds(2), ""))
    exited = daemon.exited("a")
    assert exited.checkpoint is not None
    assert exited.checkpoint.name == "two"
    daemon.send(staged(house, "b", "ls $WINDFALL_CHECKPOINT_DIR", kept(house), FENCE + 1))
    daemon.exited("b")
    assert house.log("b").split() == ["one", "two"]


@pytest.mark.parametrize("victim", ["agent", "courier"])
def test_a_death_before_the_rest_is_saved_saves_it_nevertheless(house: House, victim: str):
    daemon = house.daemon()
    script = 'cd "$WINDFALL_CHECKPOINT_DIR"; echo ready; while [ ! -e go ]; do sleep 0.05; done; echo 2 > two; exit 9'
    daemon.send(staged(house, "a", script, kept(house)))
    wait_until(ready(house, "a"), "it runs")
    agent = daemon.inventory.agent_pid
    courier = courier_of(agent)
    assert courier is not None
    os.kill(courier, signal.SIGSTOP)
    (inside(house, "a") / "checkpoints" / "go").touch()
    wait_until(journal_has(house, "D"), "the end is on record, the rest is not saved")
    if victim == "agent":
        os.kill(agent, signal.SIGKILL)
        daemon.close()
    os.kill(courier, signal.SIGKILL)
    if victim == "agent":
        daemon = house.daemon()
        assert [status.state for status in daemon.inventory.attempts] == ["running"]
    exited = daemon.exited("a")
    assert exited.exit_code == 9
    assert exited.checkpoint is not None
    daemon.send(staged(house, "b", "ls $WINDFALL_CHECKPOINT_DIR", kept(house), FENCE + 1))
    daemon.exited("b")
    assert house.log("b").split() == ["go", "two"]


def test_killing_agent_and_warden_saves_what_the_process_left(plain: House):
    daemon = plain.daemon()
    script = 'cd "$WINDFALL_CHECKPOINT_DIR"; echo 1 > one; ' + WAITS
    daemon.send(staged(plain, "a", script, kept(plain)))
    wait_until(ready(plain, "a"), "it runs")
    pid = daemon.started("a").pid
    plain.kill_all()
    os.kill(pid, signal.SIGKILL)
    plain.launch()
    again = plain.daemon()
    result = again.result("a")
    assert isinstance(result, Lost | Exited)
    again.send(staged(plain, "b", "ls $WINDFALL_CHECKPOINT_DIR", kept(plain), FENCE + 1))
    again.exited("b")
    assert plain.log("b").split() == ["one"]


def test_a_courier_leaves_with_its_agent(plain: House):
    daemon = plain.daemon()
    daemon.send(staged(plain, "a", WAITS, kept(plain)))
    wait_until(ready(plain, "a"), "it runs")
    courier = courier_of(daemon.inventory.agent_pid)
    assert courier is not None
    plain.close()
    wait_until(lambda: not is_alive(courier), "the courier has ended")
