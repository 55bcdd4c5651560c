from __future__ import annotations

from windfall.checkpoint.layout import PAGE_BYTES, plan
from windfall.checkpoint.leaves import LeafForm


def a_leaf(nbytes: int, device: str = "cpu", kind: str = "torch") -> LeafForm:
    return LeafForm(kind, "uint8", (nbytes,), nbytes, device)


def test_extents_do_not_overlap_and_large_ones_begin_at_a_page():
    layout = plan([(str(n), a_leaf(n * 1000)) for n in range(20)])
    ends = 0
    for extent in layout.extents:
        assert extent.offset >= ends
        assert extent.offset % 64 == 0
        if extent.form.nbytes >= PAGE_BYTES:
            assert extent.offset % PAGE_BYTES == 0
        ends = extent.stop
    assert layout.size >= ends
    assert layout.size % PAGE_BYTES == 0


def test_each_device_has_one_range_at_the_front():
    layout = plan(
        [
            ("a", a_leaf(10)),
            ("b", a_leaf(5000, "cuda:1")),
            ("c", a_leaf(7000, "cuda:0")),
            ("d", a_leaf(9000, "cuda:1")),
            ("e", a_leaf(9, "jax:gpu:0", "jax")),
        ]
    )
    assert [extent.path for extent in layout.extents] == ["c", "b", "d", "a", "e"]
    assert [region.device for region in layout.regions] == ["cuda:0", "cuda:1"]
    first, second = layout.regions
    assert (first.start, first.stop) == (0, 7000)
    assert second.start % PAGE_BYTES == 0
    assert second.stop - second.start >= 14000


def test_segments_cover_the_image_and_no_leaf_crosses_one():
    layout = plan([(str(n), a_leaf(30_000)) for n in range(10)], segment_bytes=100_000)
    assert len(layout.segments) > 2
    at = 0
    for segment in layout.segments:
        assert segment.start == at
        at += segment.length
    assert at == layout.size
    for extent in layout.extents:
        segment = layout.segments[extent.segment]
        assert segment.start <= extent.offset
        assert extent.stop <= segment.start + segment.length


def test_state_without_arrays_has_an_empty_image():
    layout = plan([])
    assert layout.size == 0
    assert layout.for_manifest()["leaves"] == []


def test_the_same_forms_give_the_same_places():
    forms = [(str(n), a_leaf(n, "cuda:0" if n % 2 else "cpu")) for n in range(1, 50)]
    assert plan(forms) == plan(list(forms))
