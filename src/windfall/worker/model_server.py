"""The model server: answers GET /ping and POST /invocations with the functions of a user's inference.py.

Stands in for the inference toolkit of AWS's images where a replica is a process: `model_fn`, `input_fn`, `predict_fn`,
`output_fn` and `transform_fn` mean what they mean there. It is handed to the user's Python as a file, so it needs
nothing but the standard library, and must not import anything of Windfall.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

JSON, CSV, NPY, TEXT = "application/json", "text/csv", "application/x-npy", "text/plain"
#: As much of an error as the caller gets; the log has all of it.
_ERROR_CHARACTERS = 2_000
_IDLE_S = 75


class Unsupported(Exception):
    """A content type that neither the script nor the defaults read or write."""


class Model:
    """A loaded model and the functions around it."""

    def __init__(self, script: ModuleType, directory: str, at_once: int) -> None:
        self._script = script
        self._turn = threading.Semaphore(at_once)
        load = getattr(script, "model_fn", None)
        if load is None:
            raise SystemExit("the script has no model_fn(model_dir), which loads the model")
        self._model = _called(load, directory)

    def answer(self, body: bytes, content_type: str, accept: str) -> tuple[Any, str]:
        """The answer to one request and its content type."""
        with self._turn:
            if (transform := getattr(self._script, "transform_fn", None)) is not None:
                return _typed(_called(transform, self._model, body, content_type, accept), accept)
            read = getattr(self._script, "input_fn", read_input)
            predict = getattr(self._script, "predict_fn", default_predict)
            write = getattr(self._script, "output_fn", write_output)
            data = _called(read, body, content_type)
            prediction = _called(predict, data, self._model)
            if inspect.isgenerator(prediction):
                return prediction, accept
            return _typed(_called(write, prediction, accept), accept)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; newer toolkits give some of them a context as their last argument."""
    try:
        takes = len(
            [
                parameter
                for parameter in inspect.signature(function).parameters.values()
                if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            ]
        )
    except (TypeError, ValueError):
        takes = len(arguments)
    return function(*arguments, None) if takes == len(arguments) + 1 else function(*arguments)


def _typed(output: Any, accept: str) -> tuple[Any, str]:
    """What a script returned and its content type: the answer alone, or a pair."""
    if isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], str):
        return output
    return output, accept


def read_input(body: bytes, content_type: str) -> Any:
    """A request's body as the toolkits read it by default."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON:
        return json.loads(body)
    if kind == CSV:
        rows = [line.split(",") for line in body.decode().splitlines() if line]
        return [[float(field) for field in row] for row in rows]
    if kind == NPY:
        import numpy as np  # type: ignore[import-not-found,unused-ignore]  # the user's own

        return np.load(io.BytesIO(body), allow_pickle=False)
    if kind == TEXT:
        return body.decode()
    raise Unsupported(
        f"content type {content_type!r} needs an input_fn; {JSON}, {CSV}, {NPY} and {TEXT} do not"
    )


def default_predict(data: Any, model: Any) -> Any:
    """Ask the model: its `predict`, or the model itself."""
    return model.predict(data) if hasattr(model, "predict") else model(data)


def write_output(prediction: Any, accept: str) -> tuple[bytes, str]:
    """An answer's body as the toolkits write it by default."""
    kind = accept.partition(";")[0].strip().lower()
    plain = prediction.tolist() if hasattr(prediction, "tolist") else prediction
    if kind in (JSON, "*/*", ""):
        return json.dumps(plain).encode(), JSON
    if kind == CSV:
        rows = plain if isinstance(plain, list) else [plain]
        lines = (",".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows)
        return "\n".join(lines).encode(), CSV
    if kind == NPY:
        import numpy as np  # type: ignore[import-not-found,unused-ignore]  # the user's own

        buffer = io.BytesIO()
        np.save(buffer, np.asarray(prediction), allow_pickle=False)
        return buffer.getvalue(), NPY
    if kind == TEXT:
        return str(plain).encode(), TEXT
    raise Unsupported(f"accept {accept!r} needs an output_fn; {JSON}, {CSV}, {NPY} and {TEXT} do not")


def as_bytes(output: Any) -> bytes:
    """What a script returned, as the body of an answer."""
    if isinstance(output, bytes | bytearray | memoryview):
        return bytes(output)
    return output.encode() if isinstance(output, str) else json.dumps(output).encode()


class Answering(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    #: Answers are small and wanted at once.
    disable_nagle_algorithm = True
    wbufsize = -1
    model: Model

    def do_GET(self) -> None:
        """Answer a ping."""
        self._send(200 if self.path == "/ping" else 404, b"", TEXT)

    def do_POST(self) -> None:
        """Answer a request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != "/invocations":
            self._send(404, b"", TEXT)
            return
        content_type = self.headers.get("Content-Type") or JSON
        accept = self.headers.get("Accept") or JSON
        try:
            output, kind = self.model.answer(body, content_type, JSON if accept == "*/*" else accept)
            if inspect.isgenerator(output):
                self._stream(output, kind)
                return
            answer, status = as_bytes(output), 200
        except Unsupported as refusal:
            answer, kind, status = str(refusal).encode(), TEXT, 415
        except Exception as error:  # noqa: BLE001 - the script's own; the server goes on
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]
            answer, kind, status = text.encode(), TEXT, 500
        self._send(status, answer, kind)

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _stream(self, parts: Iterator[Any], kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for part in parts:
                chunk = as_bytes(part)
                if chunk:
                    self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except Exception:  # noqa: BLE001 - without the last chunk the reader knows that something is missing
            traceback.print_exc()
            self.close_connection = True

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the standard library's name
        """Say nothing of requests that went well: pings would fill the log."""


class Server(ThreadingHTTPServer):
    """Listens for the router alone."""

    daemon_threads = True
    request_queue_size = 512


def load_script(directory: str, program: str) -> ModuleType:
    """The user's script as a module; what lies beside it can be imported."""
    path = Path(directory, program)
    if not path.is_file():
        raise SystemExit(
            f"the model has no {program} in {path.parent.name}/; put it there, name another with"
            " SAGEMAKER_PROGRAM, or map the image to a server of this host with `windfall image add`"
        )
    sys.path.insert(0, str(path.parent))
    specification = importlib.util.spec_from_file_location("inference", path)
    assert specification is not None
    assert specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    sys.modules["inference"] = script
    specification.loader.exec_module(script)
    return script


def _note_failure(text: str) -> None:
    path = os.environ.get("WINDFALL_FAILURE_FILE")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:1_000])


def main() -> None:
    """Load the model, then listen; a ping is answered from then on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--code", required=True)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        script = load_script(options.code, options.program)
        workers = int(os.environ.get("SAGEMAKER_MODEL_SERVER_WORKERS") or 1)
        Answering.model = Model(script, os.environ.get("SM_MODEL_DIR", "/opt/ml/model"), max(1, workers))
        address = os.environ.get("WINDFALL_SERVE_ADDRESS") or "127.0.0.1"
        server = Server((address, int(os.environ.get("SAGEMAKER_BIND_TO_PORT") or 8080)), Answering)
    except SystemExit as stopped:
        _note_failure(str(stopped.code))
        raise
    except BaseException as error:
        _note_failure(f"{type(error).__name__}: {error}")
        raise
    sys.stdout.write(f"serving {options.program} on {address}:{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
