"""PyTorch: modules, optimizers, schedulers and generators come back bit for bit, in place where they exist."""

from __future__ import annotations

import copy
import importlib.util
from types import SimpleNamespace

import pytest

from tests.unit.checkpoint.test_frameworks_values import stored, through
from windfall.checkpoint import frameworks
from windfall.checkpoint.errors import Mismatch, NotTrackable
from windfall.checkpoint.progress import as_number

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture
def torch():
    import torch

    torch.manual_seed(0)
    return torch


def bits(torch, obj):
    """Every tensor of an object, by path, as bytes; plain values as they are in the tree."""
    flattened = frameworks.flatten(obj)
    return flattened.tree, {
        path: bytes(frameworks.host_bytes(leaf)) for path, leaf in flattened.leaves.items()
    }


def a_model(torch):
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 3)
    )


def a_program(torch, optimizer, scheduler):
    """A small training with dropout and shuffling; returns what it tracks and a function that goes on to a step."""
    torch.manual_seed(11)
    model = a_model(torch)
    opt = optimizer(model.parameters())
    sched = scheduler(opt)
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    ema = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    order = torch.Generator().manual_seed(5)
    inputs = torch.randn(64, 6)
    at = {"step": 0}
    tracked = {
        "model": model,
        "opt": opt,
        "sched": sched,
        "scaler": scaler,
        "ema": ema,
        "order": order,
        "at": at,
    }

    def go(stop):
        while at["step"] < stop:
            batch = inputs[torch.randperm(64, generator=order)[:16]]
            loss = (model(batch) - batch[:, :3]).square().mean() + 0.01 * torch.rand(())
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            sched.step()
            ema.update_parameters(model)
            at["step"] += 1

    return tracked, go


OPTIMIZERS = {
    "SGD": lambda o: lambda ps: o.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda o: lambda ps: o.Adam(ps, lr=0.01, amsgrad=True),
    "AdamW": lambda o: lambda ps: o.AdamW(ps, lr=0.01),
    "AdamW, foreach": lambda o: lambda ps: o.AdamW(ps, lr=0.01, foreach=True),
    "AdamW, fused": lambda o: lambda ps: o.AdamW(ps, lr=0.01, fused=True),
    "RMSprop": lambda o: lambda ps: o.RMSprop(ps, lr=0.01, centered=True, momentum=0.5),
    "Adagrad": lambda o: lambda ps: o.Adagrad(ps, lr=0.1),
    "NAdam": lambda o: lambda ps: o.NAdam(ps, lr=0.01),
    "Rprop": lambda o: lambda ps: o.Rprop(ps, lr=0.01),
    "ASGD": lambda o: lambda ps: o.ASGD(ps, lr=0.01),
    "Adafactor": lambda o: lambda ps: o.Adafactor(ps, lr=0.01),
}
SCHEDULERS = {
    "OneCycle": lambda s: lambda opt: s.OneCycleLR(opt, max_lr=0.1, total_steps=40, cycle_momentum=False),
    "Cosine": lambda s: lambda opt: s.CosineAnnealingWarmRestarts(opt, T_0=4),
    "MultiStep": lambda s: lambda opt: s.MultiStepLR(opt, milestones=[3, 9]),
    "Lambda": lambda s: lambda opt: s.LambdaLR(opt, lambda step: 0.95**step),
    "Sequential": lambda s: (
        lambda opt: s.SequentialLR(
            opt, [s.ConstantLR(opt, 0.1, 3), s.ExponentialLR(opt, 0.9)], milestones=[5]
        )
    ),
}


@pytest.mark.parametrize("case", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("schedule", ["OneCycle"])
def test_a_training_resumed_in_fresh_objects_ends_with_the_same_bits(torch, case, schedule):
    make = (OPTIMIZERS[case](torch.optim), SCHEDULERS[schedule](torch.optim.lr_scheduler))
    uninterrupted, go = a_program(torch, *make)
    go(9)
    halfway, rng = stored(frameworks.flatten(uninterrupted)), stored(frameworks.rng_state())
    go(18)

    resumed, go_on = a_program(torch, *make)  # an optimizer that has never stepped has no state yet
    frameworks.restore(resumed, *halfway)
    frameworks.set_rng_state(*rng)
    go_on(18)
    assert bits(torch, resumed) == bits(torch, uninterrupted)


@pytest.mark.parametrize("schedule", SCHEDULERS, ids=str)
def test_schedulers_go_on_where_they_were(torch, schedule):
    make = (OPTIMIZERS["SGD"](torch.optim), SCHEDULERS[schedule](torch.optim.lr_scheduler))
    uninterrupted, go = a_program(torch, *make)
    go(7)
    halfway = stored(frameworks.flatten(uninterrupted))
    resumed, _ = a_program(torch, *make)
    frameworks.restore(resumed, *halfway)
    for _ in range(6):
        for program in (uninterrupted, resumed):
            program["opt"].step()
            program["sched"].step()
        assert resumed["sched"].get_last_lr() == uninterrupted["sched"].get_last_lr()


def test_a_loss_is_read_without_a_warning(torch, recwarn):
    loss = torch.ones(1, requires_grad=True).sum()
    assert as_number(loss) == 1.0
    assert not recwarn.list


def test_parameters_keep_their_place_in_memory(torch):
    model, other = a_model(torch), a_model(torch)
    addresses = [parameter.data_ptr() for parameter in other.parameters()]
    through(model, other)
    assert [parameter.data_ptr() for parameter in other.parameters()] == addresses
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
    assert all(parameter.requires_grad for parameter in other.parameters())


def test_every_dtype_comes_back_bit_for_bit(torch):
    floats = ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"]
    wholes = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "bool"]
    bytes_ = [f"float8_{form}" for form in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")]
    for name in floats + wholes + bytes_:
        dtype = getattr(torch, name)
        raw = torch.randint(0, 2 if name == "bool" else 256, (64 * dtype.itemsize,), dtype=torch.uint8)
        live = {"t": torch.zeros(8, 8, dtype=dtype)}
        source = raw.view(dtype).reshape(8, 8)
        through({"t": source}, live)
        assert torch.equal(live["t"].view(torch.uint8), source.view(torch.uint8)), name
        made = SimpleNamespace(t=None)
        through(SimpleNamespace(t=source), made)
        assert made.t.dtype == dtype
        assert torch.equal(made.t.view(torch.uint8), source.view(torch.uint8)), name


def test_memory_formats_are_kept(torch):
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(model.parameters())
    model(image).sum().backward()
    opt.step()
    other = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    other_opt = torch.optim.Adam(other.parameters())
    through([model, opt], [other, other_opt])
    assert other.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(other.weight, model.weight)
    moment, other_moment = opt.state[model.weight]["exp_avg"], other_opt.state[other.weight]["exp_avg"]
    assert other_moment.stride() == moment.stride()
    assert torch.equal(other_moment, moment)


def test_tied_weights_and_views_are_stored_once(torch):
    fused = torch.randn(12, 4)
    conjugated = torch.randn(4, dtype=torch.complex64)
    state = {
        "qkv": fused,
        "q": fused[:4],
        "column": fused[:, 1],
        "turned": fused.t(),
        "tied": [fused, torch.randn(2)],
        "wave": conjugated,
        "mirror": conjugated.conj(),
    }
    flattened = frameworks.flatten(state)
    assert sorted(flattened.leaves) == ["mirror", "qkv", "tied/1", "wave"]
    live = {
        name: torch.zeros_like(member) if name != "tied" else [torch.zeros(12, 4), torch.zeros(2)]
        for name, member in state.items()
    }
    frameworks.restore(live, *stored(flattened))
    for name in ("qkv", "q", "column", "turned", "wave", "mirror"):
        assert torch.equal(live[name], state[name]), name
    assert torch.equal(live["tied"][0], fused)


def test_slices_of_a_buffer_that_is_not_tracked_itself_are_stored_one_by_one(torch):
    flat = torch.arange(10.0)
    flattened = frameworks.flatten({"a": flat[:4], "b": flat[4:]})
    assert sorted(flattened.leaves) == ["a", "b"]
    assert sum(frameworks.describe(leaf).nbytes for leaf in flattened.leaves.values()) == 40


def test_a_tied_module_stores_its_weight_once(torch):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(5, 4)
            self.head = torch.nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

    model, other = Tied(), Tied()
    assert len(frameworks.flatten(model).leaves) == 1
    through(model, other)
    assert torch.equal(other.head.weight, model.embed.weight)
    assert other.head.weight is other.embed.weight


def test_buffers_outside_of_state_dict_and_extra_state_come_back(torch):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Module()
            self.inner.register_buffer("seen", torch.zeros(2), persistent=False)
            self.inner.register_buffer("cache", torch.zeros(1), persistent=False)
            self.note = "fresh"

        def get_extra_state(self):
            return {"note": self.note}

        def set_extra_state(self, state):
            self.note = state["note"]

    model, other = Counting(), Counting()
    model.inner.seen += 3
    model.inner.cache = torch.ones(7)  # a cache that has grown
    model.note = "worn"
    through(model, other)
    assert other.inner.seen.tolist() == [3, 3]
    assert other.inner.cache.tolist() == [1] * 7
    assert other.note == "worn"


def test_a_compiled_module_and_the_plain_one_fit_each_other(torch):
    plain = a_model(torch)
    compiled = torch.compile(copy.deepcopy(plain), backend="eager")
    partly = copy.deepcopy(plain)
    partly[0] = torch.compile(partly[0], backend="eager")
    with torch.no_grad():
        plain[0].weight.fill_(0.5)
    through(plain, compiled)
    assert torch.equal(compiled.state_dict()["_orig_mod.0.weight"], plain[0].weight)
    through(compiled, partly)
    assert torch.equal(partly[0].weight, plain[0].weight)
    through(partly, plain)
    assert set(frameworks.flatten(partly).leaves) == set(frameworks.flatten(plain).leaves)


def test_optimizer_state_wider_than_its_parameters_is_not_narrowed(torch):
    class Wide(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    master = self.state[parameter].setdefault("master", parameter.detach().float() + 1e-4)
                    master -= 0.1 * parameter.grad.float()

    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    opt = Wide([weight])
    weight.grad = torch.full_like(weight, 0.3)
    opt.step()
    other_weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    other = Wide([other_weight])
    through(opt, other)
    assert other.state[other_weight]["master"].dtype == torch.float32
    assert torch.equal(other.state[other_weight]["master"], opt.state[weight]["master"])


def test_restored_state_does_not_live_in_the_engines_buffer(torch):
    model = a_model(torch)
    opt = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 6)).sum().backward()
    opt.step()
    tree, read = stored(frameworks.flatten(opt))
    handed_out = []

    def remembered(path):
        leaf = read(path)
        handed_out.append(leaf.buffer)
        return leaf

    other_model = a_model(torch)
    other = torch.optim.Adam(other_model.parameters())
    frameworks.restore(other, tree, remembered)
    before = bits(torch, other)
    for buffer in handed_out:
        buffer[:] = bytes(len(buffer))
    assert bits(torch, other) == before


def test_a_stateful_loader_in_the_manner_of_torchdata_goes_on(torch):
    class Loader:
        def __init__(self):
            self.position = torch.zeros((), dtype=torch.int64)
            self.workers = {"_snapshot": {"_num_yielded": 0, "_rng": torch.get_rng_state()}}

        def state_dict(self):
            return {"position": self.position, "workers": self.workers}

        def load_state_dict(self, state):
            self.position, self.workers = state["position"], state["workers"]

    loader, other = Loader(), Loader()
    loader.position += 5
    loader.workers["_snapshot"]["_num_yielded"] = 5
    through(loader, other)
    assert int(other.position) == 5
    assert other.workers["_snapshot"]["_num_yielded"] == 5


def test_torch_types_and_devices_in_a_state_come_back(torch):
    live = {"dtype": None, "device": None, "shape": None}
    through({"dtype": torch.bfloat16, "device": torch.device("cpu"), "shape": torch.Size([2, 3])}, live)
    assert live == {"dtype": torch.bfloat16, "device": torch.device("cpu"), "shape": (2, 3)}


def test_what_does_not_fit_is_refused_with_names(torch):
    model = torch.nn.Linear(2, 2)
    with pytest.raises(Mismatch, match=r"lacks \['bias'\]|has \['bias'\] besides"):
        through(model, torch.nn.Linear(2, 2, bias=False))
    with pytest.raises(Mismatch, match=r"weight: stored as \(2, 2\) torch.float32, the module has \(2, 3\)"):
        through(model, torch.nn.Linear(3, 2))
    with pytest.raises(Mismatch, match=r"torch\.bfloat16"):
        through(model, torch.nn.Linear(2, 2, dtype=torch.bfloat16))
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(Mismatch, match="parameter group"):
        through(one, torch.optim.SGD([model.weight], lr=0.1))


def test_tensors_without_plain_bytes_are_refused(torch):
    with pytest.raises(NotTrackable, match=r"s: a tensor of layout torch\.sparse_coo"):
        frameworks.flatten({"s": torch.eye(2).to_sparse()})
    with pytest.raises(NotTrackable, match="run the module on one batch"):
        frameworks.flatten(torch.nn.LazyLinear(3))


def test_a_view_of_bytes_keeps_its_tensor_alive(torch):
    content = frameworks.host_bytes(torch.arange(1000))
    torch.zeros(1000, dtype=torch.int64)  # would take over the memory if it had been given back
    assert content[:16].cast("q").tolist() == [0, 1]
