"""A steward whose peers do everything that they must not."""

from __future__ import annotations

import fcntl
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.steward_process import HostileLine, StewardProcess
from tests.waiting import wait_until
from windfall.agent.steward.messages import (
    MOST_BYTES,
    WHOLE_BYTES,
    Copy,
    Delete,
    Done,
    Entries,
    Failed,
    Feed,
    Get,
    Head,
    Hello,
    List,
    NotAdmitted,
    Pour,
    Poured,
    Put,
    Request,
    encode,
)
from windfall.jobs.storage import Grant
from windfall.objects.errors import Refused, Unreachable


class World:
    """A store with two tenants' prefixes and the steward in front of it."""

    def __init__(self, root: Path) -> None:
        self.store = root / "store"
        self.uri = f"file://{self.store}"
        for name, content in {"mine/a": "mine", "theirs/b": "secret", "shared/c": "shared"}.items():
            path = self.store / name
            path.parent.mkdir(parents=True)
            path.write_text(content)
        self.steward = StewardProcess(root)
        self.door = self.steward.admit(
            "t", Grant(f"{self.uri}/mine", write=True), Grant(f"{self.uri}/shared", write=False)
        )
        self.mine = self.door.open(f"{self.uri}/mine")

    def hostile(self) -> HostileLine:
        return self.steward.line("t")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    built = World(tmp_path_factory.mktemp("steward"))
    yield built
    built.steward.close()


@pytest.fixture(autouse=True)
def unharmed(world: World) -> Iterator[None]:
    """Whatever a test has done: the steward lives, serves, and has neither given away nor changed what is another's."""
    yield
    assert world.steward.process.poll() is None
    assert world.mine.get("a") == b"mine"
    assert (world.store / "theirs" / "b").read_text() == "secret"
    assert sorted(path.name for path in world.store.iterdir()) == ["mine", "shared", "theirs"]


@pytest.fixture
def line(world: World) -> Iterator[HostileLine]:
    made = world.hostile()
    yield made
    made.close()


@pytest.fixture
def memory() -> Iterator[int]:
    fd = os.memfd_create("test")
    os.write(fd, b"x" * 10)
    yield fd
    os.close(fd)


# --- who may come -----------------------------------------------------------------------------------


def test_a_secret_of_another_attempt_opens_nothing(world: World):
    world.steward.admit("other", Grant(f"{world.uri}/theirs"))
    with pytest.raises(Unreachable):
        world.steward.door("other", secret="0" * 16, patience_s=0.1).open(f"{world.uri}/theirs").get("b")


def test_another_user_with_the_right_secret_is_refused(world: World):
    world.steward.admit("users", Grant(f"{world.uri}/theirs"), uid=os.getuid() + 1)
    with pytest.raises(Unreachable):
        world.steward.door("users", patience_s=0.1).open(f"{world.uri}/theirs").get("b")


def test_an_attempt_that_nobody_told_of_is_not_served_and_not_after_its_end(world: World):
    with pytest.raises(Unreachable, match="knows nothing of this attempt"):
        world.steward.door("nobody", secret="x", patience_s=0.1).open(world.uri).get("a")
    door = world.steward.admit("short", Grant(f"{world.uri}/mine"))
    objects = door.open(f"{world.uri}/mine")
    assert objects.get("a") == b"mine"
    world.steward.dismiss("short")

    def is_over() -> bool:
        line = HostileLine(world.steward.path)
        try:
            return isinstance(line.ask(Hello("short", "whatever")), NotAdmitted)
        finally:
            line.close()

    wait_until(is_over, "the end has been told")
    impatient = world.steward.door("short", patience_s=0.1).open(f"{world.uri}/mine")
    with pytest.raises(Unreachable):
        impatient.get("a")


def test_grants_that_are_told_anew_hold_at_once(world: World):
    door = world.steward.admit("changing", Grant(f"{world.uri}/mine"))
    objects = door.open(f"{world.uri}/mine")
    assert objects.get("a") == b"mine"
    world.steward.admit("changing", Grant(f"{world.uri}/shared"))

    def is_refused() -> bool:
        try:
            objects.get("a")
        except Refused:
            return True
        except Unreachable:
            return False
        return False

    wait_until(is_refused, "the steward has heard of it")


@pytest.mark.parametrize(
    "first",
    [
        Get("file:///", "etc/passwd"),
        Poured(whole=True),
        b"",
        b"\xc1",
        b"{}",
        b"\x92\xa5Hello",
        bytes(range(100)),
    ],
)
def test_a_connection_that_does_not_begin_with_its_attempt_is_closed(world: World, first: Request | bytes):
    line = HostileLine(world.steward.path)
    line.send(first if isinstance(first, bytes) else encode(first))
    assert line.hear() is None
    line.close()


def test_there_are_only_so_many_connections_for_one_attempt(world: World):
    lines = []
    try:
        world.steward.admit("greedy", Grant(f"{world.uri}/mine"))
        answers = []
        for _ in range(70):
            line = HostileLine(world.steward.path)
            lines.append(line)
            answers.append(line.ask(Hello("greedy", world.steward.secrets["greedy"])))
        served = [answer for answer in answers if isinstance(answer, Done)]
        assert 0 < len(served) <= 64
    finally:
        for line in lines:
            line.close()


# --- what may be asked ------------------------------------------------------------------------------

NAMES = ["../theirs/b", "x/../../theirs/b", "/etc/passwd", "..", ".", "", "a//b", "a/", "x\0y"]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out_of_its_prefix(world: World, line: HostileLine, memory: int, name: str):
    uri = f"{world.uri}/mine"
    for request in (
        Get(uri, name),
        Get(uri, name, 0, 5),
        Head(uri, name),
        Put(uri, name, create_only=False, content=b"x", size=1),
        Copy(uri, name, "fresh"),
        Copy(uri, "a", name),
        Delete(uri, (name,)),
    ):
        answer = line.ask(request, *([memory] if isinstance(request, Get) else []))
        assert isinstance(answer, Failed), request
        assert answer.kind == "BadUri", request
    listed = line.ask(List(uri, name)) if name.strip("/") not in ("", "a") else None
    assert listed is None or isinstance(listed, Failed)


@pytest.mark.parametrize(
    "place",
    [
        "theirs",
        "mine/../theirs",
        "mine/%2e%2e/theirs",
        "min",
        "mine2",
        "",
        "shared/../theirs",
        "mine%2f..%2ftheirs",
    ],
)
def test_no_uri_leads_out_of_the_grants(world: World, line: HostileLine, memory: int, place: str):
    uri = f"{world.uri}/{place}"
    key = "theirs/b" if place == "" else "b"
    for request in (
        Get(uri, key),
        Get(uri, key, 0, 5),
        Head(uri, key),
        List(uri, ""),
        Put(uri, key, create_only=False, content=b"x", size=1),
        Copy(uri, key, "c"),
        Delete(uri, (key,)),
    ):
        answer = line.ask(request, *([memory] if isinstance(request, Get) else []))
        assert isinstance(answer, Failed), (request, answer)
        assert answer.kind in ("Refused", "BadUri"), (request, answer)
    assert os.pread(memory, 100, 0) == b"x" * 10


@pytest.mark.parametrize(
    "uri", ["file:///etc", "s3://bucket/x", "file://host/x", "http://x/", "", "memory://x", "file:///"]
)
def test_no_other_storage_is_opened(world: World, line: HostileLine, memory: int, uri: str):
    answer = line.ask(Get(uri, "passwd"), memory)
    assert isinstance(answer, Failed)
    assert os.pread(memory, 100, 0) == b"x" * 10


def test_what_may_only_be_read_is_not_written(world: World, line: HostileLine):
    shared = world.door.open(f"{world.uri}/shared")
    assert shared.get("c") == b"shared"
    for change in (
        lambda: shared.put("c", b"x"),
        lambda: shared.put_pieces("c", [b"x"]),
        lambda: shared.delete(["c"]),
        lambda: shared.copy("c", "d"),
    ):
        with pytest.raises(Refused):
            change()
    assert shared.get("c") == b"shared"


def test_a_listing_shows_what_is_granted_and_nothing_else(world: World, line: HostileLine):
    answer = line.ask(List(f"{world.uri}/mine", ""))
    assert isinstance(answer, Entries)
    assert [row[0] for row in answer.rows] == ["a"]


# --- what may travel with it ------------------------------------------------------------------------


def _opened(path: str, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("path", "flags"),
    [
        ("/dev/null", os.O_RDWR),
        ("/proc/self/oom_score_adj", os.O_RDWR),
        ("/proc/self/comm", os.O_RDWR),
        ("/", os.O_RDONLY | os.O_DIRECTORY),
        ("/etc/passwd", os.O_PATH),
        ("/etc/passwd", os.O_RDONLY),
    ],
)
def test_a_descriptor_of_anything_but_a_plain_file_ends_the_connection(world: World, path: str, flags: int):
    for request in (
        Get(f"{world.uri}/mine", "a"),
        Put(f"{world.uri}/mine", "p", create_only=False, content=None, size=3),
        Feed(3),
    ):
        if path == "/etc/passwd" and flags == os.O_RDONLY and not isinstance(request, Get):
            continue  # Where attempts are on the same disk it is a file that its sender may read.
        line = world.hostile()
        for fd in _opened(path, flags):
            assert line.ask(request, fd) is None, request
        line.close()


def test_an_o_path_descriptor_is_never_opened_again_with_more_rights(world: World, tmp_path: Path):
    """A user may have a file open by its path alone that it cannot read; the steward could."""
    hidden = tmp_path / "hidden"
    hidden.write_text("hidden")
    line = world.hostile()
    for fd in _opened(str(hidden), os.O_PATH):
        request = Put(f"{world.uri}/mine", "p", create_only=False, content=None, size=6)
        assert line.ask(request, fd) is None
    line.close()
    assert world.mine.head("p") is None


def test_missing_and_surplus_descriptors_end_the_connection(world: World, memory: int):
    for descriptors in ((), (memory, memory), (memory,) * 200):
        line = world.hostile()
        assert line.ask(Get(f"{world.uri}/mine", "a"), *descriptors) is None
        line.close()


@pytest.mark.parametrize("size", [-1, 11, 1 << 62, WHOLE_BYTES + 1])
def test_a_length_that_is_not_true_puts_nothing(world: World, memory: int, size: int):
    line = world.hostile()
    answer = line.ask(Put(f"{world.uri}/mine", "p", create_only=False, content=None, size=size), memory)
    assert answer is None or isinstance(answer, Failed)
    line.close()
    assert world.mine.head("p") is None


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW])
def test_memory_is_read_whether_or_not_it_can_go_away_or_has_holes(
    world: World, line: HostileLine, seals: int
):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.pwrite(fd, b"end", (1 << 20) - 3)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    for content in (None, b"x" * (1 << 20)):
        if content is not None:
            os.pwrite(fd, content, 0)
        request = Put(f"{world.uri}/mine", "p", create_only=False, content=None, size=1 << 20)
        assert line.ask(request, fd) == Done(1 << 20)
        assert world.mine.get("p") == (content or bytes((1 << 20) - 3) + b"end")
    os.close(fd)
    world.mine.delete(["p"])


def test_a_range_without_bounds_is_refused(world: World, line: HostileLine, memory: int):
    for start, end in ((0, 1 << 50), (-5, 5), (-(1 << 50), 0)):
        answer = line.ask(Get(f"{world.uri}/mine", "a", start, end), memory)
        assert isinstance(answer, Failed)


def test_a_packet_that_is_too_long_ends_the_connection(world: World):
    for size in (MOST_BYTES + 1, 3 * MOST_BYTES):
        line = world.hostile()
        line.send(encode(List(f"{world.uri}/mine", "x" * size)))
        assert line.hear() is None
        line.close()


# --- pieces -----------------------------------------------------------------------------------------


def test_pieces_whose_sender_is_gone_make_no_object(world: World):
    line = world.hostile()
    theirs, ours = os.pipe()
    line.send(encode(Pour(f"{world.uri}/mine", "half")), theirs)
    os.close(theirs)
    os.write(ours, b"half of it")
    line.close()
    os.close(ours)
    incoming = world.store / "mine"
    wait_until(lambda: [path.name for path in incoming.iterdir()] == ["a"], "nothing is left of it")


def test_a_request_among_pieces_ends_the_connection_and_makes_no_object(world: World):
    line = world.hostile()
    theirs, ours = os.pipe()
    line.send(encode(Pour(f"{world.uri}/mine", "half")), theirs)
    os.close(theirs)
    os.write(ours, b"half of it")
    os.close(ours)
    assert line.ask(Head(f"{world.uri}/mine", "a")) is None
    line.close()
    assert world.mine.head("half") is None


def test_pieces_that_are_refused_are_refused_with_the_reason(world: World):
    with pytest.raises(Refused, match="may not write"):
        world.door.open(f"{world.uri}/shared").put_pieces("x", (b"x" * (1 << 20) for _ in range(64)))
    assert world.door.open(f"{world.uri}/shared").get("c") == b"shared"


# --- all at once ------------------------------------------------------------------------------------


def test_noise_of_many_kinds_harms_nobody(world: World, memory: int):
    dice = random.Random(20261116)
    good = [
        encode(Get(f"{world.uri}/mine", "a")),
        encode(Put(f"{world.uri}/mine", "noise", create_only=False, content=b"x", size=1)),
        encode(List(f"{world.uri}/mine", "")),
        encode(Delete(f"{world.uri}/mine", ("noise",))),
        encode(Pour(f"{world.uri}/mine", "noise")),
        encode(Feed(10)),
    ]

    def noise(seed: int) -> None:
        mine = random.Random(seed)
        for _ in range(60):
            line = world.hostile()
            try:
                for _ in range(4):
                    content = bytearray(mine.choice(good))
                    for _ in range(mine.randrange(4)):
                        content[mine.randrange(len(content))] = mine.randrange(256)
                    line.send(
                        bytes(content[: mine.randrange(len(content) + 1)] or b"?"),
                        *[memory] * mine.randrange(2),
                    )
            except OSError:
                pass
            finally:
                line.close()

    threads = [threading.Thread(target=noise, args=(dice.random(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.mine.delete(["noise"])


def test_a_feeder_is_not_started_by_what_is_no_order(world: World, memory: int):
    line = world.hostile()
    assert line.ask(Feed(10), memory) is None
    line.close()
    line = world.hostile()
    assert line.ask(Feed(1 << 30), memory) is None
    line.close()


# --- credentials for Git ----------------------------------------------------------------------------


@pytest.fixture
def kept(world: World) -> Path:
    """The daemon's secrets, with credentials of two tenants among them."""
    directory = Path(world.steward.settings.secrets_directory or "")
    (directory / "@lab").mkdir(exist_ok=True)
    for name in ("git@host", "@lab/git@host", "@lab/git@other", "token"):
        (directory / name).write_text(f"value of {name}")
    return directory


def test_a_credential_is_the_one_that_the_agent_named(world: World, kept: Path):
    assert world.steward.admit("lab", credential="lab/git@host").credential() == "value of @lab/git@host"
    assert world.steward.admit("missing", credential="lab/git@missing").credential() is None
    assert world.steward.admit("none").credential() is None


@pytest.mark.parametrize("name", ["token", "lab/../token", "git@host/../token", "../secrets/git@host"])
def test_another_secret_is_no_credential_whoever_names_it(world: World, kept: Path, name: str):
    assert world.steward.admit(name, credential=name).credential() is None


def test_a_peer_cannot_name_a_credential(world: World, kept: Path):
    world.steward.admit("naming", credential="lab/git@host")
    line = world.steward.line("naming")
    line.send(msgspec.msgpack.encode(["AskCredential", "git@host"]))
    assert line.hear() is None
    line.close()


def test_a_credential_is_given_until_the_agent_takes_it_back(world: World, kept: Path):
    door = world.steward.admit("fetched", credential="git@host")
    assert door.credential() == "value of git@host"
    world.steward.admit("fetched")
    wait_until(lambda: door.credential() is None, "the steward to hear that the code is fetched")
