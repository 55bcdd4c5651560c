"""Keras and TensorFlow: models, optimizers, seeds, variables and generators come back bit for bit."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import warnings

import pytest

from tests.unit.checkpoint.test_frameworks_values import stored, through
from windfall.checkpoint import frameworks
from windfall.checkpoint.errors import Mismatch, NotTrackable

missing = importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("keras") is None
pytestmark = [
    pytest.mark.skipif(missing, reason="TensorFlow and Keras are not installed"),
    # TensorFlow and Keras use what their own dependencies have deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def tensorflow(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing TensorFlow warns about protobuf and numpy
        import tensorflow as tf

    return tf


@pytest.fixture
def keras(tensorflow):
    import keras

    assert keras.backend.backend() == "tensorflow", "unset KERAS_BACKEND for this test"
    return keras


def a_model(keras):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(12, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.4, seed=9),
            keras.layers.Dense(2),
        ]
    )
    model.compile(optimizer=keras.optimizers.AdamW(0.01, use_ema=True), loss="mse", metrics=["mae"])
    return model


def train(model, rng, steps):
    for _ in range(steps):
        batch = rng.standard_normal((8, 6)).astype("float32")
        model.train_on_batch(batch, batch[:, :2])


def bits(obj):
    leaves = frameworks.flatten(obj).leaves
    return {path: bytes(frameworks.host_bytes(leaf)) for path, leaf in leaves.items()}


def test_a_training_resumed_in_a_fresh_model_ends_with_the_same_bits(keras):
    numpy = pytest.importorskip("numpy")
    uninterrupted, rng = a_model(keras), numpy.random.default_rng(1)
    train(uninterrupted, rng, 4)
    halfway = stored(frameworks.flatten({"model": uninterrupted, "rng": rng}))
    train(uninterrupted, rng, 5)

    resumed, rng = a_model(keras), numpy.random.default_rng(2)
    frameworks.restore({"model": resumed, "rng": rng}, *halfway)
    train(resumed, rng, 5)
    parts = ("variables", "optimizer")
    ends = [{p: b for p, b in bits(m).items() if p.startswith(parts)} for m in (resumed, uninterrupted)]
    assert len(ends[0]) > 10
    assert ends[0] == ends[1]


def test_an_optimizer_by_itself_must_be_built_first(keras):
    model, other = a_model(keras), a_model(keras)
    model.optimizer.build(model.trainable_variables)
    with pytest.raises(Mismatch, match=r"optimizer\.build"):
        through(model.optimizer, other.optimizer)
    other.optimizer.build(other.trainable_variables)
    model.optimizer.iterations.assign(7)
    through(model.optimizer, other.optimizer)
    assert int(other.optimizer.iterations) == 7


def test_a_model_that_is_not_built_is_refused(keras):
    model = a_model(keras)
    fresh = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(Mismatch, match=r"build the model \(model.build"):
        through(keras.Sequential(model.layers), fresh)


def test_seed_generators_and_metrics_go_on(keras):
    seeds, other = keras.random.SeedGenerator(5), keras.random.SeedGenerator(6)
    seeds.next()
    through(seeds, other)
    assert (
        keras.random.normal((3,), seed=seeds).numpy().tolist()
        == keras.random.normal((3,), seed=other).numpy().tolist()
    )
    mean, other_mean = keras.metrics.Mean(), keras.metrics.Mean()
    mean.update_state([1.0, 2.0])
    through(mean, other_mean)
    assert float(other_mean.result()) == 1.5


def test_variables_modules_and_generators_are_filled_in_place(tensorflow):
    tf = tensorflow

    class Linear(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.random.normal((2, 3)))
            self.b = tf.Variable(tf.zeros(3, tf.bfloat16))

    model, other = Linear(), Linear()
    held = other.w
    through(model, other)
    assert other.w is held
    assert (other.w.numpy() == model.w.numpy()).all()
    variable, other_variable = tf.Variable([1, 2]), tf.Variable([0, 0])
    through({"v": variable}, {"v": other_variable})
    assert other_variable.numpy().tolist() == [1, 2]
    generator, copy = tf.random.Generator.from_seed(1), tf.random.Generator.from_seed(2)
    generator.normal((2,))
    through(generator, copy)
    assert generator.normal((4,)).numpy().tolist() == copy.normal((4,)).numpy().tolist()
    with pytest.raises(NotTrackable, match="never changes in place"):
        frameworks.flatten({"t": tf.constant(1.0)})


def test_the_global_generator_of_tensorflow_is_among_the_rngs(tensorflow):
    generator = tensorflow.random.get_global_generator()
    state = stored(frameworks.rng_state())
    expected = generator.normal((4,)).numpy().tolist()
    frameworks.set_rng_state(*state)
    assert generator.normal((4,)).numpy().tolist() == expected


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_on_another_backend_is_restored_too(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    code = """
        import keras, numpy
        from tests.unit.checkpoint.test_frameworks_keras import a_model, bits, train
        from tests.unit.checkpoint.test_frameworks_values import stored
        from windfall.checkpoint import frameworks

        whole, rng = a_model(keras), numpy.random.default_rng(1)
        train(whole, rng, 3)
        halfway = stored(frameworks.flatten({"model": whole, "rng": rng}))
        train(whole, rng, 3)
        resumed, rng = a_model(keras), numpy.random.default_rng(2)
        frameworks.restore({"model": resumed, "rng": rng}, *halfway)
        train(resumed, rng, 3)
        ends = [{p: b for p, b in bits(m).items() if not p.startswith("metrics")} for m in (resumed, whole)]
        kinds = {frameworks.describe(leaf).kind for leaf in frameworks.flatten(whole).leaves.values()}
        print(keras.backend.backend(), kinds, ends[0] == ends[1], len(ends[0]) > 10)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.strip() == f"{backend} {{'{backend}'}} True True", done.stderr[-3000:]
