"""What the worker of a Python function makes of values, exits and exceptions; over the real protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.worker import calling
from windfall.worker.calling import call, exit_code_of, exit_code_of_exit, load

SOURCE = Path(calling.__file__).read_text()


@pytest.mark.parametrize(
    ("value", "code"), [(None, 0), (0, 0), (3, 3), (256 + 7, 7), (-1, 255), (True, 0), ("text", 0), ([1], 0)]
)
def test_an_integer_is_an_exit_code_and_anything_else_is_success(value, code):
    assert exit_code_of(value) == code


def test_an_exit_with_a_text_says_it_and_fails(capsys):
    assert (exit_code_of_exit(None), exit_code_of_exit(4)) == (0, 4)
    assert exit_code_of_exit("no input") == 1
    assert capsys.readouterr().err == "no input\n"


def test_an_exception_is_told_without_our_own_frames(capsys):
    def wrong(index: int) -> None:
        raise ValueError(f"bad {index}")

    assert call(wrong, 5) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "ValueError: bad 5"
    assert not any("worker/calling.py" in line for line in told)


def test_a_target_may_be_an_attribute_of_an_attribute():
    assert load("os:path.basename") is os.path.basename
    with pytest.raises(TypeError, match="os:sep is not a function"):
        load("os:sep")


def serve(directory: Path, target: str, *tasks: dict[str, object]) -> tuple[list[dict[str, object]], str]:
    """Run the worker as the keeper does, and return its answers and all that it printed."""
    reader, writer = os.pipe()
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    script = 'exec 3> "/dev/fd/$0"; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, str(writer), sys.executable, "-c", SOURCE, target],
        input=lines,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory,
        pass_fds=(writer,),
        timeout=60,
        check=True,
    )
    os.close(writer)
    with os.fdopen(reader) as answers:
        return [json.loads(line) for line in answers], done.stdout


def test_each_call_sees_its_own_environment_and_an_empty_input(tmp_path: Path):
    (tmp_path / "job.py").write_text(
        "import os, sys\n"
        "print('imported')\n"
        "def work(index):\n"
        "    print(index, os.environ.get('A'), os.environ.get('B'), repr(sys.stdin.read()))\n"
    )
    answers, printed = serve(
        tmp_path,
        "job:work",
        {"index": 0, "environment": {"A": "a", "B": "b"}},
        {"index": 1, "environment": {"A": "c"}},
    )
    assert answers == [{"exit_code": 0, "leave": False}] * 2
    assert printed.splitlines() == ["imported", "0 a b ''", "1 c None ''"]


def test_a_module_that_fails_to_import_is_told_and_the_worker_leaves(tmp_path: Path):
    (tmp_path / "job.py").write_text("import no_such_module\n")
    task = {"index": 0, "environment": {}}
    answers, printed = serve(tmp_path, "job:work", task, task)
    assert answers == [{"exit_code": 1, "leave": True}]
    assert printed.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module'"


def test_what_a_function_starts_cannot_take_a_task_or_answer(tmp_path: Path):
    (tmp_path / "job.py").write_text(
        "import subprocess\ndef work(index):\n"
        "    return subprocess.run(['sh', '-c', 'cat; ls /proc/self/fd | wc -l'], close_fds=False).returncode\n"
    )
    answers, printed = serve(tmp_path, "job:work", *({"index": n, "environment": {}} for n in range(2)))
    assert len(answers) == 2
    # 0, 1, 2, the directory that is being listed, and nothing of ours.
    assert all(int(line) <= 5 for line in printed.split())
