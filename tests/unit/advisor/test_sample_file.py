"""The bytes of a file of samples: what goes in comes out, what is torn does not, two samples become one truthfully."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.advisor.sample_file import (
    MOST_RECORDS,
    Header,
    SampleLayout,
    halved,
    merged,
    newest,
    parse,
    recording,
)
from windfall.advisor.samples import GpuSample, Sample, SampledGpu

H200 = SampledGpu("GPU-1", "NVIDIA H200", 143_771, 700.0, 1980.0, 63e9)


def a_sample(at: int = 2_000, **more) -> Sample:
    return Sample(at, more.pop("span_ms", 2_000), **more)


def a_file(header: Header, samples: list[Sample], latest: Sample | None = None) -> bytes:
    layout = SampleLayout(len(header.gpus))
    first = layout.pack(latest) if latest is not None else bytes(layout.size)
    return header.encode() + first + b"".join(layout.pack(sample) for sample in samples)


def test_what_goes_in_comes_out():
    gpu = GpuSample(busy=0.75, memory_bytes=float(1 << 36), throttle=4.0)
    one = a_sample(1_800_000_000_123, cpu_cores=3.5, steps=12.0, gpus=(gpu,))
    read = recording(a_file(Header("job#1", 4.0, 2048, (H200,)), [one]))
    assert (read.token, read.vcpus, read.memory_mib, read.gpus) == ("job#1", 4.0, 2048, (H200,))
    (sample,) = read.samples
    assert (sample.at, sample.span_ms, sample.cpu_cores, sample.steps) == (
        1_800_000_000_123,
        2_000,
        3.5,
        12.0,
    )
    assert math.isnan(sample.memory_bytes)
    assert (sample.gpus[0].busy, sample.gpus[0].memory_bytes, sample.gpus[0].throttle) == (0.75, 2.0**36, 4.0)
    assert math.isnan(sample.gpus[0].power_w)


def test_the_first_record_is_the_newest_sample_as_it_was_taken():
    header = Header("job#1", 1.0, 64, (H200,), merges=4)
    latest = a_sample(9_000, cpu_cores=0.5, gpus=(GpuSample(busy=1.0),))
    content = a_file(header, [a_sample(gpus=(GpuSample(),))], latest)
    gpus, sample = newest(content[:900])
    assert (gpus, sample.at, sample.cpu_cores, sample.gpus[0].busy) == ((H200,), 9_000, 0.5, 1.0)
    assert len(recording(content).samples) == 1


def test_a_file_without_a_sample_yet_has_no_newest_one():
    assert newest(a_file(Header("job#1", 1.0, 64), [])) is None


@pytest.mark.parametrize("cut", range(1, 76, 7))
def test_a_torn_last_record_is_left_out(cut):
    content = a_file(Header("job#1", 1.0, 64), [a_sample(1), a_sample(2)])
    assert [sample.at for sample in recording(content[:-cut]).samples] == [1]


def test_a_record_of_zeros_that_a_crash_left_is_left_out():
    content = a_file(Header("job#1", 1.0, 64), [a_sample(1)]) + bytes(SampleLayout(0).size)
    assert [sample.at for sample in recording(content).samples] == [1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no header",
        b"{}\n",
        b'{"version":2,"gpus":[]}\n',
        b"[1]\n",
        b'{"version":1,"gpus":3}\n',
        b"\xff\n",
        # What a hostile machine may send as its own.
        b'{"version":1,"gpus":' + b"[" * 20_000 + b"]" * 20_000 + b"}\n",
        b'{"version":1,"token":"t","vcpus":"many","memory_mib":64,"gpus":[],"merges":1}\n' + bytes(200),
        b'{"version":1,"token":"t","vcpus":NaN,"memory_mib":64,"gpus":[],"merges":1}\n' + bytes(200),
        b'{"version":1,"token":"t","vcpus":1,"memory_mib":64,"gpus":[{"id":[],"name":1}],"merges":1}\n',
    ],
)
def test_what_is_no_such_file_is_not_read(content):
    assert parse(content) is None
    assert newest(content) is None


def test_measures_that_no_reader_could_have_are_unknown_and_a_time_beyond_all_calendars_is_no_sample():
    content = a_file(Header("job#1", 1.0, 64), [a_sample(1, cpu_cores=math.inf), a_sample(1 << 63)])
    (sample,) = recording(content).samples
    assert sample.at == 1
    assert math.isnan(sample.cpu_cores)


def test_two_samples_become_one_by_their_spans():
    one = a_sample(2_000, span_ms=2_000, cpu_cores=1.0, memory_bytes=10.0, steps=3.0, data_wait_s=0.5)
    two = a_sample(8_000, span_ms=6_000, cpu_cores=3.0, memory_bytes=7.0, steps=5.0, data_wait_s=0.25)
    both = merged(one, two)
    assert (both.at, both.span_ms) == (8_000, 8_000)
    assert both.cpu_cores == pytest.approx(2.5)
    assert both.memory_bytes == 10.0
    assert (both.steps, both.data_wait_s) == (8.0, 0.75)


def test_what_only_one_of_two_knows_is_that_ones():
    one, two = a_sample(gpus=(GpuSample(busy=0.5, throttle=1.0),)), a_sample(gpus=(GpuSample(throttle=6.0),))
    both = merged(one, two).gpus[0]
    assert (both.busy, both.throttle) == (0.5, 7.0)
    assert math.isnan(both.power_w)


@given(st.lists(st.tuples(st.integers(1, 60_000), st.floats(0, 64)), min_size=1, max_size=50))
def test_halving_keeps_the_time_and_the_processor_seconds(rows):
    at, history = 0, []
    for span_ms, cores in rows:
        at += span_ms
        history.append(a_sample(at, span_ms=span_ms, cpu_cores=cores))
    fewer = halved(history)
    assert len(fewer) == (len(history) + 1) // 2
    assert fewer[-1].at == history[-1].at
    assert sum(sample.span_ms for sample in fewer) == at
    used = sum(sample.cpu_cores * sample.span_ms for sample in fewer)
    assert used == pytest.approx(sum(sample.cpu_cores * sample.span_ms for sample in history))


def test_a_full_file_is_as_large_as_the_page_says():
    assert [MOST_RECORDS * SampleLayout(gpus).size // 1000 for gpus in (0, 1, 8)] == [311, 507, 1884]
