"""A kept form must be given again only while it is true; each change below must be seen."""

from __future__ import annotations

import pytest

from windfall.checkpoint import frameworks
from windfall.checkpoint.flatten_cache import FlattenCache

torch = pytest.importorskip("torch", reason="torch is not installed")


class Counted:
    """Frameworks' flatten, counted by what it was called for."""

    def __init__(self) -> None:
        self.whole = 0

    def __call__(self, tracked):
        self.whole += not isinstance(tracked, dict)
        return frameworks.flatten(tracked)


def a_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def trained(model: torch.nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer)
    return optimizer


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()


def equal_to_a_full_flattening(cache: FlattenCache, name: str, tracked: object) -> bool:
    cheap, full = cache.flatten(name, tracked), frameworks.flatten(tracked)
    return (
        cheap.tree == full.tree
        and list(cheap.leaves) == list(full.leaves)
        and all(cheap.leaves[path].data_ptr() == leaf.data_ptr() for path, leaf in full.leaves.items())
    )


def test_training_does_not_need_a_full_flattening():
    model = a_model()
    optimizer = trained(model)
    counted = Counted()
    cache = FlattenCache(counted)
    for _ in range(3):
        assert equal_to_a_full_flattening(cache, "model", model)
        assert equal_to_a_full_flattening(cache, "opt", optimizer)
        train(model, optimizer)
    assert counted.whole == 2


def test_a_learning_rate_that_changed_is_seen():
    optimizer = trained(a_model())
    counted = Counted()
    cache = FlattenCache(counted)
    cache.flatten("opt", optimizer)
    optimizer.param_groups[0]["lr"] = 0.025
    assert "0.025" in str(cache.flatten("opt", optimizer).tree)
    assert equal_to_a_full_flattening(cache, "opt", optimizer)
    assert counted.whole == 1


def test_the_form_that_was_given_before_keeps_its_numbers():
    optimizer = trained(a_model())
    cache = FlattenCache(frameworks.flatten)
    cache.flatten("opt", optimizer)
    before = cache.flatten("opt", optimizer)
    optimizer.param_groups[0]["lr"] = 0.025
    cache.flatten("opt", optimizer)
    assert "0.025" not in str(before.tree)


def replace_parameter(model, _):
    model[0].weight = torch.nn.Parameter(torch.ones(4, 4))


def replace_memory(model, _):
    model[0].weight.data = torch.ones(4, 4)


def replace_module(model, _):
    model[2] = torch.nn.Linear(4, 2)


def add_buffer(model, _):
    model.register_buffer("extra", torch.ones(3))


def change_type(model, _):
    model.double()


def tie(model, _):
    model[2] = model[0]


@pytest.mark.parametrize(
    "change", [replace_parameter, replace_memory, replace_module, add_buffer, change_type, tie]
)
def test_a_change_of_the_model_is_seen(change):
    model = a_model()
    cache = FlattenCache(frameworks.flatten)
    assert equal_to_a_full_flattening(cache, "model", model)
    change(model, None)
    assert equal_to_a_full_flattening(cache, "model", model)


def load_old_state(model, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def clear_state(model, optimizer):
    optimizer.state.clear()


def add_group(model, optimizer):
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], "lr": 0.5})


def swap_parameters(model, optimizer):
    params = optimizer.param_groups[0]["params"]
    params[0], params[1] = params[1], params[0]


@pytest.mark.parametrize("change", [load_old_state, clear_state, add_group, swap_parameters])
def test_a_change_of_the_optimizer_is_seen(change):
    model = a_model()
    optimizer = trained(model)
    cache = FlattenCache(frameworks.flatten)
    assert equal_to_a_full_flattening(cache, "opt", optimizer)
    change(model, optimizer)
    assert equal_to_a_full_flattening(cache, "opt", optimizer)


def test_state_before_the_first_step_grows_later():
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cache = FlattenCache(frameworks.flatten)
    assert equal_to_a_full_flattening(cache, "opt", optimizer)
    train(model, optimizer)
    assert equal_to_a_full_flattening(cache, "opt", optimizer)


def test_hooks_and_methods_of_the_users_own_are_always_asked():
    class Own(torch.nn.Linear):
        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    model = Own(2, 2)
    model.seen = 1
    cache = FlattenCache(frameworks.flatten)
    cache.flatten("model", model)
    model.seen = 2
    assert equal_to_a_full_flattening(cache, "model", model)
