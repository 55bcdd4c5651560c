"""Keras: a fit that is interrupted in the middle of an epoch ends with the same bits, on each of its backends."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

missing = importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("keras") is None
pytestmark = pytest.mark.skipif(missing, reason="TensorFlow and Keras are not installed")

#: Keras chooses its backend at import, so each has a process of its own.
PROGRAM = """
    import sys
    from pathlib import Path
    import keras, numpy
    import windfall.checkpoint as ckpt
    from windfall.checkpoint.adapters.keras import fit

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            batch = numpy.random.default_rng(index).standard_normal((8, 4)).astype("float32")
            return batch, batch[:, :1]

    class Crash(Exception):
        pass

    def train(directory, crash_at=None):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([
            keras.Input((4,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ])
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
        run = ckpt.open(directory, every=1)

        class CrashAt(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if int(self.model.optimizer.iterations) == crash_at:
                    run.snapshot(crash_at).result(30)
                    raise Crash

        try:
            fit(model, Batches(), run, epochs=3, callbacks=[CrashAt()], verbose=0)
        finally:
            run.done(save=False)
        assert int(model.optimizer.iterations) == 15
        return b"".join(numpy.ascontiguousarray(w).tobytes() for w in model.get_weights())

    place = Path(sys.argv[1])
    whole = train(place / "whole")
    for crash_at in (2, 10, 13):
        try:
            train(place / "parts", crash_at)
        except Crash:
            print("crashed at", crash_at)
    print("equal:", train(place / "parts") == whole, keras.backend.backend())
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_interrupted_three_times_ends_with_the_same_weights(backend, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), str(tmp_path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.splitlines() == [
        "crashed at 2",
        "crashed at 10",
        "crashed at 13",
        f"equal: True {backend}",
    ], done.stderr[-3000:]
