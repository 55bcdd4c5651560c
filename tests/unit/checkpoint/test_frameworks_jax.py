"""JAX: pytrees by (get, set), PRNG keys of both kinds and registered nodes come back bit for bit."""

from __future__ import annotations

import importlib.util
from collections import namedtuple
from types import SimpleNamespace

import pytest

from tests.unit.checkpoint.test_frameworks_values import stored, through
from windfall.checkpoint import frameworks
from windfall.checkpoint.errors import Mismatch, NotTrackable

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")

AdamState = namedtuple("AdamState", ["count", "mean", "square"])


@pytest.fixture
def jax():
    import jax

    return jax


def a_program(jax):
    """A training with dropout and shuffling whose state is replaced at every step; arguments are donated."""
    jnp = jax.numpy
    inputs = jax.random.normal(jax.random.key(1), (32, 4))

    def loss(params, batch, key):
        hidden = jnp.tanh(batch @ params["hidden"]["w"] + params["hidden"]["b"])
        hidden = jnp.where(jax.random.bernoulli(key, 0.8, hidden.shape), hidden / 0.8, 0.0)
        return jnp.mean((hidden @ params["out"] - batch) ** 2)

    def step(params, opt, key):
        key, order, drop = jax.random.split(key, 3)
        grads = jax.grad(loss)(params, inputs[jax.random.permutation(order, 32)[:8]], drop)
        count = opt.count + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt.mean, grads)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, opt.square, grads)
        params = jax.tree.map(
            lambda p, m, s: p - 0.01 * (m / (1 - 0.9**count)) / (jnp.sqrt(s) + 1e-8), params, mean, square
        )
        return params, AdamState(count, mean, square), key

    jitted = jax.jit(step, donate_argnums=(0, 1))
    params = {"hidden": {"w": jnp.ones((4, 6)) * 0.1, "b": jnp.zeros(6)}, "out": jnp.ones((6, 4)) * 0.2}
    zeros = jax.tree.map(jnp.zeros_like, params)
    live = SimpleNamespace(
        params=params,
        opt=AdamState(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.copy, zeros)),
        key=jax.random.key(7),
        step=0,
    )

    def go(stop):
        while live.step < stop:
            live.params, live.opt, live.key = jitted(live.params, live.opt, live.key)
            live.step += 1

    return live, go


def test_a_training_resumed_ends_with_the_same_bits(jax):
    uninterrupted, go = a_program(jax)
    go(6)
    halfway = stored(frameworks.flatten(uninterrupted))
    go(14)
    resumed, go_on = a_program(jax)
    frameworks.restore(resumed, *halfway)
    go_on(14)
    ends = [
        {path: bytes(frameworks.host_bytes(leaf)) for path, leaf in frameworks.flatten(live).leaves.items()}
        for live in (resumed, uninterrupted)
    ]
    assert ends[0] == ends[1]
    assert "opt/mean/hidden/w" in ends[0]
    assert resumed.step == 14


def test_a_pytree_is_tracked_by_a_pair_of_functions(jax):
    jnp = jax.numpy
    state = {"w": jnp.arange(3.0), "opt": AdamState(jnp.int32(2), (jnp.ones(2),), [None])}
    taken = []
    like = {"w": jnp.zeros(3), "opt": AdamState(jnp.int32(0), (jnp.zeros(2),), [None])}
    frameworks.restore(
        (lambda: like, taken.append), *stored(frameworks.flatten((lambda: state, taken.append)))
    )
    assert taken[0]["w"].tolist() == [0, 1, 2]
    assert isinstance(taken[0]["opt"], AdamState)
    assert jax.tree.structure(taken[0]) == jax.tree.structure(state)


def test_keys_of_both_kinds_go_on_where_they_were(jax):
    for key in (jax.random.key(3), jax.random.key(3, impl="rbg"), jax.random.PRNGKey(3)):
        live = SimpleNamespace(key=None, many=None)
        through(SimpleNamespace(key=key, many=jax.random.split(key, 3)), live)
        assert live.key.dtype == key.dtype
        assert live.many.shape[0] == 3
        assert jax.random.normal(live.key, (4,)).tolist() == jax.random.normal(key, (4,)).tolist()


def test_every_dtype_comes_back(jax):
    jnp = jax.numpy
    for name in ("float32", "bfloat16", "float16", "float8_e4m3fn", "complex64", "int8", "uint32", "bool"):
        array = jnp.asarray([0, 1, 1]).astype(name)
        live = SimpleNamespace(a=jnp.zeros(3, name))
        through(SimpleNamespace(a=array), live)
        assert live.a.dtype == array.dtype
        assert (live.a == array).all()


def test_weak_types_of_scalars_and_placement_are_kept(jax):
    jnp = jax.numpy
    placed = jax.device_put(jnp.zeros(2), jax.devices()[0])
    live = SimpleNamespace(scale=None, placed=placed)
    through(SimpleNamespace(scale=jnp.asarray(0.1), placed=placed + 1), live)
    assert live.scale.weak_type
    assert live.scale == jnp.asarray(0.1)
    assert live.placed.committed
    assert live.placed.tolist() == [1, 1]


def test_registered_nodes_are_rebuilt_like_the_live_ones(jax):
    class TrainState:
        def __init__(self, params, apply):
            self.params, self.apply = params, apply

    jax.tree_util.register_pytree_node(
        TrainState, lambda state: ((state.params,), state.apply), lambda apply, kids: TrainState(*kids, apply)
    )
    jnp = jax.numpy
    live = SimpleNamespace(train=TrainState({"w": jnp.zeros(2)}, len))
    through(SimpleNamespace(train=TrainState({"w": jnp.ones(2)}, len)), live)
    assert live.train.params["w"].tolist() == [1, 1]
    assert live.train.apply is len
    with pytest.raises(NotTrackable, match="Track a pair of functions"):
        frameworks.flatten(live.train)


def test_restored_arrays_do_not_live_in_the_engines_buffer(jax):
    tree, read = stored(frameworks.flatten(SimpleNamespace(w=jax.numpy.arange(64.0))))
    leaf = read("w")
    live = SimpleNamespace(w=None)
    frameworks.restore(live, tree, lambda path: leaf)
    leaf.buffer[:] = bytes(leaf.buffer.nbytes)
    assert live.w.tolist() == list(range(64))


def test_arrays_that_a_loop_would_rebind_are_refused(jax):
    with pytest.raises(NotTrackable, match=r"hidden/w is an array of jax, .*\(lambda: state, set_state\)"):
        frameworks.flatten({"hidden": {"w": jax.numpy.zeros(2)}})


def test_a_step_inside_of_jit_is_refused(jax):
    def traced(array):
        frameworks.flatten(SimpleNamespace(a=array))
        return array

    with pytest.raises(NotTrackable, match="outside of jit"):
        jax.jit(traced)(jax.numpy.zeros(2))


def test_wide_floats_without_x64_are_refused_and_not_narrowed(jax):
    with jax.enable_x64(True):
        kept = stored(frameworks.flatten(SimpleNamespace(a=jax.numpy.zeros(2, "float64"))))
    with pytest.raises(Mismatch, match="jax_enable_x64"):
        frameworks.restore(SimpleNamespace(a=None), *kept)
