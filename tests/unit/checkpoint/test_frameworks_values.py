"""Plain values, numpy arrays and generators survive the way through a JSON tree and bytes, in place."""

from __future__ import annotations

import enum
import json
import math
import random
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from windfall.checkpoint import frameworks
from windfall.checkpoint.errors import Mismatch, NotTrackable
from windfall.checkpoint.leaves import Flattened, ReadLeaf, StoredLeaf


def stored(flattened: Flattened) -> tuple[object, ReadLeaf]:
    """What the engine does between flatten and restore, in memory: strict JSON, and bytes that are really copied."""
    tree = json.loads(json.dumps(flattened.tree, allow_nan=False))
    kept = {}
    for path, leaf in flattened.leaves.items():
        form, content = frameworks.describe(leaf), bytes(frameworks.host_bytes(leaf))
        assert form.nbytes == len(content), path
        kept[path] = (form, content)

    def read(path: str) -> StoredLeaf:
        form, content = kept[path]
        return StoredLeaf(form.dtype, form.shape, memoryview(bytearray(content)))

    return tree, read


def through(obj: object, into: object) -> None:
    """Stores one object and restores its state into another."""
    frameworks.restore(into, *stored(frameworks.flatten(obj)))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


Point = namedtuple("Point", ["x", "y"])


@dataclass
class Progress:
    epoch: int
    best: float


PLAIN = {
    "none": None,
    "yes": True,
    "whole": 2**80,
    "third": 1 / 3,
    "tiny": 5e-324,
    "text": "tränen / 100%",
    "raw": b"\x00\xff",
    "wave": complex(0.1, -0.0),
    "both": (1, [2.5, "x"]),
    "unique": {3, 1, 2},
    "fixed": frozenset({"a"}),
    "line": deque([1, 2], maxlen=5),
    "counted": Counter({4: 2}),
    "ordered": OrderedDict(b=1, a=2),
    7: "a number as key",
    (1, 2): "a tuple as key",
    "colour": Colour.BLUE,
}


def test_plain_values_come_back_equal_and_of_the_same_type():
    live = dict.fromkeys(PLAIN)
    through(dict(PLAIN), live)
    assert live == PLAIN
    assert [type(value) for value in live.values()] == [type(value) for value in PLAIN.values()]
    assert live["line"].maxlen == 5
    assert math.copysign(1, live["wave"].imag) == -1


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_floats_that_json_lacks_come_back(value):
    live = {"loss": 0.0}
    through({"loss": value}, live)
    assert repr(live["loss"]) == repr(value)


def test_containers_are_changed_and_not_replaced():
    counters, history = {"epoch": 1}, [1, 2, 3]
    state = {"counters": counters, "history": history, "extra": "gone after the restore"}
    through({"counters": {"epoch": 7}, "history": [9]}, state)
    assert counters == {"epoch": 7}
    assert history == [9]
    assert state["counters"] is counters
    assert "extra" not in state


def test_the_live_value_supplies_types_that_a_tree_only_names():
    live = SimpleNamespace(point=Point(0, 0), progress=Progress(0, 0.0), seen=defaultdict(list))
    through(SimpleNamespace(point=Point(1, 2.5), progress=Progress(3, 0.25), seen={"a": [1]}), live)
    assert live.point == Point(1, 2.5)
    assert live.progress == Progress(3, 0.25)
    assert live.seen["new"] == []
    assert live.seen["a"] == [1]


def test_a_pair_of_functions_gives_and_takes():
    taken = []
    frameworks.restore((dict, taken.append), *stored(frameworks.flatten((lambda: {"step": 4}, taken.append))))
    assert taken == [{"step": 4}]


class Counting:
    def __init__(self, position=0):
        self.position = position

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def test_objects_with_state_dict_are_restored_wherever_they_stand():
    first, second = Counting(3), Counting(5)
    live_first, live_second = Counting(), Counting()
    through({"loaders": [first, second]}, {"loaders": [live_first, live_second]})
    assert (live_first.position, live_second.position) == (3, 5)


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({"model": {"hook": lambda: None}}, "model/hook"),
        ({"lock": object()}, "lock"),
        ([1, open], "1"),
    ],
)
def test_an_unknown_value_is_refused_with_its_path_and_what_to_do(obj, path):
    with pytest.raises(
        NotTrackable, match=rf"^{path} is a .* state_dict\(\) and load_state_dict\(\).*register"
    ):
        frameworks.flatten(obj)


def test_a_bare_number_is_refused_with_what_to_do():
    with pytest.raises(NotTrackable, match="Track a dict that holds it"):
        frameworks.flatten(3)


class Celsius:
    def __init__(self, degrees):
        self.degrees = degrees


def test_a_registered_type_is_stored_by_its_functions():
    with pytest.raises(NotTrackable):
        frameworks.flatten({"limit": Celsius(20)})
    frameworks.register(Celsius, lambda value: value.degrees, Celsius)
    live = {"limit": None}
    through({"limit": Celsius(36.6)}, live)
    assert live["limit"].degrees == 36.6


def test_a_form_from_a_newer_version_is_refused():
    with pytest.raises(Mismatch, match="resume with the version"):
        frameworks.restore({}, {"~": "hologram"}, lambda path: None)


def test_another_object_than_the_stored_one_is_refused():
    with pytest.raises(
        Mismatch, match="the checkpoint holds an object of the kind state_dict, the program holds a dict"
    ):
        through(Counting(1), {})


def test_an_enum_is_never_imported_by_name():
    tree = {"~": "dict", "type": "dict", "items": [["x", {"~": "enum", "type": "os:system", "name": "BLUE"}]]}
    with pytest.raises(Mismatch, match="a member of the enum"):
        frameworks.restore({}, tree, lambda path: None)


def test_random_generators_go_on_where_they_were():
    mine, copy = random.Random(5), random.Random(6)
    mine.gauss(0, 1)  # leaves a spare value inside
    through(mine, copy)
    assert [mine.gauss(0, 1) for _ in range(3)] == [copy.gauss(0, 1) for _ in range(3)]
    state = stored(frameworks.rng_state())
    expected = [random.random() for _ in range(3)]
    frameworks.set_rng_state(*state)
    assert [random.random() for _ in range(3)] == expected


def test_no_framework_is_imported_that_the_job_has_not_imported():
    names = ["numpy", "torch", "jax", "tensorflow", "keras"]
    code = (
        "import sys; from windfall.checkpoint import frameworks as f; f.flatten({'a': 1}); f.rng_state(); "
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------------- numpy


@pytest.fixture
def numpy():
    return pytest.importorskip("numpy", reason="numpy is not installed")


def test_numpy_arrays_are_filled_in_place(numpy):
    rng = numpy.random.default_rng(0)
    arrays = {
        "float32": rng.standard_normal((3, 4)).astype("float32"),
        "int8": numpy.arange(5, dtype="int8"),
        "bool": numpy.array([True, False]),
        "complex": numpy.array([1 + 2j, -0.0], dtype="complex64"),
        "scalar": numpy.array(3.5),
        "empty": numpy.empty((0, 4)),
        "fortran": numpy.asfortranarray(rng.standard_normal((2, 3))),
        "strided": rng.standard_normal((4, 6))[:, ::2],
        "big-endian": numpy.arange(3, dtype=">i4"),
        "dates": numpy.array(["2026-01-01"], dtype="datetime64[ns]"),
        "text": numpy.array(["ab", "c"]),
    }
    live = {name: numpy.zeros_like(array) for name, array in arrays.items()}
    held = dict(live)
    through(arrays, live)
    for name, array in arrays.items():
        assert live[name] is held[name], name
        assert live[name].tobytes() == array.tobytes(), name


def test_a_numpy_array_without_a_live_one_is_made_anew_and_owned(numpy):
    live = SimpleNamespace(a=None, f=None, n=None)
    through(
        SimpleNamespace(
            a=numpy.arange(4.0), f=numpy.asfortranarray(numpy.ones((2, 3))), n=numpy.float32(1.5)
        ),
        live,
    )
    assert live.a.tolist() == [0, 1, 2, 3]
    assert live.a.flags.writeable
    assert live.f.flags.f_contiguous
    assert isinstance(live.n, numpy.float32)
    assert live.n == 1.5


def test_an_array_held_twice_is_one_leaf(numpy):
    shared = numpy.arange(3)
    flattened = frameworks.flatten({"a": shared, "b": [shared, shared.copy()]})
    assert sorted(flattened.leaves) == ["a", "b/1"]


def test_keys_that_look_alike_stay_apart(numpy):
    arrays = {
        1: numpy.zeros(1),
        "1": numpy.ones(1),
        "a/b": numpy.full(1, 2.0),
        "a": {"b": numpy.full(1, 3.0)},
    }
    live = {1: numpy.empty(1), "1": numpy.empty(1), "a/b": numpy.empty(1), "a": {"b": numpy.empty(1)}}
    through(arrays, live)
    assert [live[1][0], live["1"][0], live["a/b"][0], live["a"]["b"][0]] == [0, 1, 2, 3]


def test_another_shape_is_refused(numpy):
    with pytest.raises(Mismatch, match="w: stored with another shape"):
        through({"w": numpy.zeros(3)}, {"w": numpy.zeros(4)})


def test_an_array_of_objects_is_refused(numpy):
    with pytest.raises(NotTrackable, match="w: an array of object"):
        frameworks.flatten({"w": numpy.array([object()])})


def test_numpy_generators_go_on_where_they_were(numpy):
    for make in (numpy.random.default_rng, numpy.random.RandomState):
        mine, copy = make(1), make(2)
        mine.standard_normal(3)
        through(mine, copy)
        assert mine.standard_normal(4).tobytes() == copy.standard_normal(4).tobytes()
    numpy.random.standard_normal(1)
    state = stored(frameworks.rng_state())
    expected = numpy.random.standard_normal(4).tobytes()
    frameworks.set_rng_state(*state)
    assert numpy.random.standard_normal(4).tobytes() == expected
    with pytest.raises(Mismatch, match="stored by PCG64, the program uses Philox"):
        through(numpy.random.default_rng(1), numpy.random.Generator(numpy.random.Philox(1)))


def test_a_numpy_training_resumed_ends_with_the_same_bits(numpy):
    def program(stop, resume=None):
        rng = numpy.random.default_rng(3)
        weights, momentum = numpy.zeros(8), numpy.zeros(8)
        tracked = {"w": weights, "m": momentum, "rng": rng, "at": {"step": 0}}
        if resume is not None:
            frameworks.restore(tracked, *resume)
        while tracked["at"]["step"] < stop:
            batch = rng.standard_normal((16, 8))
            momentum *= 0.9
            momentum += batch.T @ (batch @ weights - batch.sum(axis=1))
            weights -= 0.01 * momentum
            tracked["at"]["step"] += 1
        return tracked

    halfway = stored(frameworks.flatten(program(7)))
    resumed, uninterrupted = program(20, halfway), program(20)
    assert resumed["w"].tobytes() == uninterrupted["w"].tobytes()
