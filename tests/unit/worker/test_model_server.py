"""The model server: what it reads and writes without functions of the user's own, and a real one that streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from windfall.worker import model_server
from windfall.worker.model_server import Model, Unsupported, read_input, write_output

SCRIPT = """
def model_fn(model_dir, context):
    return 3

def predict_fn(data, model):
    if data == "stream":
        return (str(model * number) for number in range(3))
    return model * data
"""


def a_model(**functions: Any) -> Model:
    script = ModuleType("inference")
    script.model_fn = lambda directory: directory
    for name, function in functions.items():
        setattr(script, name, function)
    return Model(script, "/model", 1)


def test_bodies_are_read_and_written_as_the_toolkits_do():
    assert read_input(b"[1, 2]", "application/json; charset=utf-8") == [1, 2]
    assert read_input(b"1,2\n3,4\n", "text/csv") == [[1.0, 2.0], [3.0, 4.0]]
    assert read_input("ü".encode(), "text/plain") == "ü"
    assert write_output([1, 2], "application/json") == (b"[1, 2]", "application/json")
    assert write_output([[1, 2], [3, 4]], "text/csv") == (b"1,2\n3,4", "text/csv")
    for refused in (lambda: read_input(b"", "image/png"), lambda: write_output(1, "image/png")):
        with pytest.raises(Unsupported, match="image/png"):
            refused()


def test_functions_of_the_script_stand_in_for_the_defaults():
    model = a_model(
        input_fn=lambda body, kind: (body, kind),
        predict_fn=lambda data, model, context: [data, model, context],
        output_fn=lambda prediction, accept: (repr(prediction), "text/x-own"),
    )
    assert model.answer(b"a", "b/c", "d/e") == ("[(b'a', 'b/c'), '/model', None]", "text/x-own")
    whole = a_model(transform_fn=lambda model, body, kind, accept: body.upper())
    assert whole.answer(b"a", "b/c", "d/e") == (b"A", "d/e")


def test_a_model_itself_is_asked():
    assert model_server.default_predict(2, lambda data: data + 1) == 3


def test_a_script_without_model_fn_says_what_is_missing():
    with pytest.raises(SystemExit, match="has no model_fn"):
        Model(ModuleType("inference"), "/model", 1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "inference.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, model_server.__file__, "--code", str(tmp_path), "--program", "inference.py"],
        env={**os.environ, "SAGEMAKER_BIND_TO_PORT": "0", "SM_MODEL_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield f"http://{process.stdout.readline().split()[-1]}"
    process.terminate()
    assert process.wait() == 0
    process.stdout.close()


def asked(url: str, data: Any) -> bytes:
    request = urllib.request.Request(f"{url}/invocations", json.dumps(data).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())


def test_a_real_server_answers_streams_and_survives_errors(server: str):
    with urllib.request.urlopen(f"{server}/ping") as ping:
        assert ping.status == 200
    assert asked(server, 2) == b"6"
    assert asked(server, "stream") == b"036"
    with pytest.raises(urllib.error.HTTPError) as failed:
        asked(server, None)
    assert failed.value.code == 500
    assert b"TypeError" in failed.value.read()
    assert asked(server, 3) == b"9"


def test_a_server_that_cannot_start_leaves_the_reason(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, model_server.__file__, "--code", str(tmp_path), "--program", "inference.py"],
        env={**os.environ, "WINDFALL_FAILURE_FILE": str(tmp_path / "failure")},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the model has no inference.py" in (tmp_path / "failure").read_text()
