"""The program of the jobs: its operations compute what they say, in every library that is here, and it tells all."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from tests.unit.cli.bench.measured import PretendedGpu
from windfall.cli.bench.sending import Python, command, packed_program
from windfall.cli.bench.suite import operations
from windfall.cli.bench.suite.ceilings import measure_ceilings
from windfall.cli.bench.suite.libraries import LIBRARIES, Library
from windfall.cli.bench.suite.measuring import Measurer, WrongResult, opened
from windfall.cli.bench.suite.operations import BLUR, IMAGE, PRODUCT, BenchOperation, carry_out, inputs
from windfall.cli.bench.suite.timing import TimeBudget, samples

HERE = [name for name in LIBRARIES if importlib.util.find_spec(name) and name != "cupy"]


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize(
    "operation", [BenchOperation(PRODUCT, 96), BenchOperation(IMAGE, 48, 2), BenchOperation(BLUR, 40)]
)
def test_every_library_computes_what_numpy_does(name, operation):
    library, host = LIBRARIES[name](), inputs(np, operation)
    wanted = carry_out(Library(), operation, host)
    found = library.get(carry_out(library, operation, [library.put(array) for array in host]))
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).mean() < 1e-5 * np.abs(wanted).mean()


def test_edges_are_zero_where_the_picture_is_flat_and_stand_at_a_step():
    picture = np.zeros((1, 6, 8), dtype=np.float32)
    picture[:, :, 4:] = 1
    found = operations.edges(Library(), picture)
    assert found.shape == picture.shape
    assert np.array_equal(found[0, 2], [0, 0, 0, 4, 4, 0, 0, 0])


def test_a_blur_keeps_the_mean_and_spreads_a_point_as_a_gaussian():
    picture = np.zeros((1, 41, 41), dtype=np.float32)
    picture[0, 20, 20] = 1
    found = operations.blur(Library(), picture)
    assert found.sum() == pytest.approx(1, abs=1e-5)
    assert found[0, 20, 23] / found[0, 20, 20] == pytest.approx(math.exp(-0.5), rel=1e-4)
    assert np.allclose(found[0], found[0].T)


def test_equalised_ranks_rise_with_the_grey_and_end_at_one():
    grey = np.linspace(0, 5, 64, dtype=np.float32).reshape(1, 8, 8)
    ranks = operations.equalised(Library(), np.concatenate([grey, grey[:, ::-1]])).reshape(2, -1)
    assert np.all(np.diff(ranks[0]) >= 0)
    assert ranks.max(axis=1) == pytest.approx([1, 1])


def test_halving_takes_the_mean_of_four():
    assert operations.halved(np.array([[[0.0, 2.0], [4.0, 6.0]]])).tolist() == [[[3.0]]]


def test_the_full_table_is_the_published_one():
    names = [one.name for one in operations.operations(quick=False)]
    assert names[:4] == [f"Matrix {size}x{size}" for size in (1000, 5000, 8000, 10000)]
    assert names[4:8] == [f"Image {s}x{s} (batch {b})" for s in (2048, 4096) for b in (1, 2)]
    assert len(names) == 9


def measured(do):
    lines: list[dict] = []
    measurer = Measurer(PretendedGpu(), lines.append, quick=True)
    do(measurer)
    return lines


def test_a_gpu_operation_is_told_apart_by_what_is_paid_for():
    lines = measured(lambda measurer: measurer.measure(BenchOperation(PRODUCT, 32)))
    assert [line["measure"] for line in lines] == [
        *("first", "resident", "in", "out", "end_to_end", "in_pinned", "out_pinned", "end_to_end_pinned"),
        "resident",
    ]
    assert [line["precision"] for line in lines] == [*["fp32"] * 8, "tf32"]
    assert all(sample > 0 for line in lines for sample in line["samples"])


def test_tf32_is_named_and_off_again():
    library = PretendedGpu()
    lines: list[dict] = []
    Measurer(library, lines.append, quick=True).measure(BenchOperation(PRODUCT, 32))
    assert lines[-1]["precision"] == "tf32"
    assert library.tf32 == [True, False]


def test_a_library_that_computes_nonsense_is_not_timed():
    class Wrong(PretendedGpu):
        def multiply(self, left, right):
            return left @ right * 1.01

    with pytest.raises(WrongResult, match="pretended on the gpu differs from numpy by"):
        Measurer(Wrong(), lambda _: None, quick=True).check()
    Measurer(PretendedGpu(), lambda _: None, quick=True).check()


def test_opening_times_the_import_and_the_first_call(monkeypatch):
    monkeypatch.setitem(LIBRARIES, "pretended", PretendedGpu)
    lines: list[dict] = []
    library = opened("pretended", "gpu", 1, lines.append)
    assert library is not None
    assert [line["fact"] for line in lines] == ["import_s", "version", "first_call_s", "gpu"]
    assert library.tf32 == [False]


def test_a_library_without_a_gpu_is_not_opened():
    assert opened("numpy", "gpu", 1, lambda _: None) is None


def test_a_library_that_cannot_be_imported_says_why(monkeypatch):
    class Broken(Library):
        def _imported(self):
            raise ImportError("libcublas.so.12: cannot open shared object file")

    monkeypatch.setitem(LIBRARIES, "broken", Broken)
    lines: list[dict] = []
    assert opened("broken", "gpu", 1, lines.append) is None
    assert [(line["fact"], line["value"][:9]) for line in lines] == [("import_error", "libcublas")]


def test_all_ceilings_of_a_gpu_are_told(monkeypatch):
    monkeypatch.setattr("windfall.cli.bench.suite.ceilings.QUICK_PRODUCTS", {"gpu": (64,)})
    monkeypatch.setattr("windfall.cli.bench.suite.ceilings.MIB", 1 << 10)
    lines: list[dict] = []
    measure_ceilings(PretendedGpu(), 1, lines.append, quick=True)
    assert [line["ceiling"] for line in lines] == [
        *("fp32_flop_s", "tf32_flop_s", "memory_bytes_s", "to_gpu_bytes_s", "from_gpu_bytes_s"),
        *("to_gpu_pinned_bytes_s", "from_gpu_pinned_bytes_s"),
    ]


def test_samples_are_within_their_budget_and_the_first_call_is_not_one():
    calls: list[int] = []
    taken = samples(lambda: calls.append(1), lambda: None, TimeBudget(0.0, least=3, most=9))
    assert (len(taken), len(calls)) == (3, 4)
    taken = samples(lambda: None, lambda: None, TimeBudget(60.0, least=3, most=9))
    assert len(taken) == 9


def run_sent(*arguments, stdin="", pass_fds=(), **environment):
    """Run the program as a job would get it: by its command alone, without this package in reach."""
    sent = command(Python(sys.executable, ("numpy",)), *arguments)
    isolated = [sent[0], "-E", *sent[1:]]
    return subprocess.run(
        isolated,
        input=stdin,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/", **environment},
        pass_fds=pass_fds,
        timeout=100,
        check=False,
    )


def test_the_program_travels_in_its_command_and_does_tasks():
    ran = run_sent("task", "--count", "2", AWS_BATCH_JOB_ARRAY_INDEX="5")
    assert ran.returncode == 0, ran.stderr
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()] == ["task 5", "task 6"]


def test_a_device_that_is_not_there_has_its_own_exit_code():
    ran = run_sent("measure", "--device", "gpu", "--quick")
    assert ran.returncode == 3, ran.stderr
    assert '"no_device"' in ran.stdout


def test_a_warm_worker_answers_each_line_and_one_that_is_none_fails(tmp_path):
    sent = command(Python(sys.executable, ("numpy",)), "lines")
    answers = tmp_path / "answers"
    lines = "".join(json.dumps({"index": index, "environment": {}}) + "\n" for index in (4, 7))
    shell = ["sh", "-c", f'exec "$@" 3> {answers}', "sh", *sent]
    ran = subprocess.run(shell, input=lines, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()] == ["task 4", "task 7"]
    assert [json.loads(line) for line in answers.read_text().splitlines()] == [{"exit_code": 0}] * 2
    assert run_sent("lines").returncode == 4


def test_the_packed_program_is_the_same_every_time_and_fits_into_an_argument():
    packed = packed_program()
    assert packed == packed_program()
    assert len(packed) < 100_000
