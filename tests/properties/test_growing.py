"""Whatever GPUs there are, a job that never has enough memory asks for strictly more each time, and comes to an end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import HOST, a_busy_world, a_job
from windfall.capacity.machines import GpuDevice, Machine
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, STARTING

OUT_OF_MEMORY = Diagnosis(FailureCause.GPU_MEMORY, "CUDA out of memory")

gpus = st.lists(
    st.tuples(st.sampled_from(["T4", "A10G", "H100"]), st.sampled_from([8, 16, 24, 80]), st.booleans()),
    min_size=1,
    max_size=6,
).map(
    lambda kinds: tuple(
        GpuDevice(f"g{n}", name, gib * 1024, sharing="mps" if shares else None)
        for n, (name, gib, shares) in enumerate(kinds)
    )
)


@settings(max_examples=150)
@given(
    gpus,
    st.integers(1, 2),
    st.sampled_from([None, "0.05", "0.3", "0.5", "0.9"]),
    st.sampled_from([None, "T4"]),
)
def test_every_try_has_more_than_the_one_before_and_it_ends(devices, count, share, model):
    if share is not None and (count > 1 or not any(gpu.sharing for gpu in devices)):
        return
    world = a_busy_world(Machine(HOST, Resources(64, 262_144, len(devices)), devices))
    memory = {gpu.id: gpu.memory_mib or 0 for gpu in devices}
    tags = {"gpu_share": share, "gpu_model": model}
    asked = {name: value for name, value in tags.items() if value is not None}
    world.submits(a_job("a").gpus(count).tagged(on_gpu_oom="larger", **asked))
    tries: list[tuple[int, float]] = []
    while world.state_of("a") is STARTING:
        attempt = world.job("a").attempts[-1]
        had = (min(memory[one] for one in attempt.gpu_ids), attempt.gpu_share or 1.0)
        if tries:
            before = tries[-1]
            assert had[1] > before[1] if before[1] < 1 else had[0] > before[0]
        tries.append(had)
        assert len(tries) <= 6 + len(devices)
        world.starts("a")
        world.happens(replace(world.exit_of("a", 1), diagnosis=OUT_OF_MEMORY))
    if tries:
        assert world.state_of("a") is FAILED
        assert (world.job("a").status_reason or "").startswith("Out of GPU memory")
