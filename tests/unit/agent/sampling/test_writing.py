"""A file of samples on a disk: bounded, gone on with by the next agent, readable while it is written."""

from __future__ import annotations

import pytest

from windfall.advisor.sample_file import Header, SampleLayout
from windfall.advisor.samples import GpuSample, Sample, SampledGpu
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.sampling.writing import SampleFile

GPU = SampledGpu("GPU-1", "NVIDIA H200", 143_771)
HEADER = Header("job#1", 2.0, 512, (GPU,))


def a_sample(number: int, cores: float = 1.0) -> Sample:
    return Sample(number * 2_000, 2_000, cpu_cores=cores, steps=1.0, gpus=(GpuSample(busy=0.5),))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t1.samples"


def test_samples_are_read_back_with_the_newest_first_at_hand(path, tmp_path):
    file = SampleFile(str(path), HEADER)
    for number in range(1, 4):
        file.add(a_sample(number, float(number)))
    reader = AttemptDirectory(tmp_path)
    read = reader.recording("t1")
    assert (read.token, read.gpus) == ("job#1", (GPU,))
    assert [sample.cpu_cores for sample in read.samples] == [1.0, 2.0, 3.0]
    assert reader.latest("t1").at == 6_000
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_never_grows_beyond_its_bound_and_keeps_the_whole_time(path, tmp_path):
    file = SampleFile(str(path), HEADER, most_records=8)
    largest = 0
    for number in range(1, 501):
        file.add(a_sample(number, cores=number % 2))
        largest = max(largest, path.stat().st_size)
    assert largest <= len(file.header.encode()) + 9 * SampleLayout(1).size
    samples = AttemptDirectory(tmp_path).recording("t1").samples
    assert 4 <= len(samples) <= 8
    assert sum(sample.span_ms for sample in samples) == 1_000_000
    assert sum(sample.steps for sample in samples) == 500
    assert {sample.span_ms for sample in samples[:-1]} == {file.header.merges * 2_000}
    latest = AttemptDirectory(tmp_path).latest("t1")
    assert (latest.at, latest.span_ms, latest.cpu_cores) == (1_000_000, 2_000, 0.0)


def test_the_next_agent_goes_on_where_the_last_one_was_killed(path, tmp_path):
    first = SampleFile(str(path), HEADER, most_records=8)
    for number in range(1, 21):
        first.add(a_sample(number))
    with path.open("ab") as file:
        file.write(b"torn")
    second = SampleFile(str(path), HEADER, most_records=8)
    assert second.resumed
    assert second.header.merges == first.header.merges
    for number in range(21, 31):
        second.add(a_sample(number))
    samples = AttemptDirectory(tmp_path).recording("t1").samples
    assert sum(sample.steps for sample in samples) == 30
    assert samples[-1].at == 60_000


def test_what_became_known_of_a_gpu_is_kept_with_the_history(path, tmp_path):
    SampleFile(str(path), HEADER).add(a_sample(1))
    known = SampledGpu("GPU-1", "NVIDIA H200", 143_771, power_limit_w=700.0)
    SampleFile(str(path), Header("job#1", 2.0, 512, (known,))).add(a_sample(2))
    read = AttemptDirectory(tmp_path).recording("t1")
    assert (read.gpus, len(read.samples)) == ((known,), 2)


@pytest.mark.parametrize("other", [Header("job#2", 2.0, 512, (GPU,)), Header("job#1", 2.0, 512)])
def test_a_file_of_something_else_is_begun_anew(path, other):
    SampleFile(str(path), HEADER).add(a_sample(1))
    assert not SampleFile(str(path), other).resumed


def test_there_is_nothing_to_read_where_nothing_was_written(tmp_path):
    reader = AttemptDirectory(tmp_path)
    assert reader.recording("t1") is None
    assert reader.latest("t1") is None
    assert reader.recording("machine") is None
    assert reader.machine_head() is None


def test_the_newest_sample_behind_a_very_long_header_is_found(path, tmp_path):
    many = tuple(SampledGpu(f"MIG-{number}-{'x' * 200}", "NVIDIA H200 MIG 1g.18gb") for number in range(56))
    sample = Sample(2_000, 2_000, gpus=tuple(GpuSample(busy=0.1) for _ in many))
    SampleFile(str(path), Header("job#1", 2.0, 512, many)).add(sample)
    assert len(AttemptDirectory(tmp_path).latest("t1").gpus) == 56
