from __future__ import annotations

import json
import math

import pytest

from windfall.checkpoint.errors import Damaged
from windfall.checkpoint.layout import plan
from windfall.checkpoint.leaves import LeafForm
from windfall.checkpoint.manifest import decode, encode


def a_manifest(trees: object = None) -> bytes:
    form = LeafForm("numpy", "float32", (3, 4), 48, "cpu")
    table = plan([("model/a", form), ("model/b", form)]).for_manifest()
    head = {"step": 7, "saved_at": 5, "final": False, "trees": trees or {"model": {"lr": 0.1}}}
    return encode(head, table, [[123]])


def test_what_goes_in_comes_out():
    found = decode(a_manifest())
    assert (found.step, found.saved_at, found.final) == (7, 5, False)
    assert found.trees == {"model": {"lr": 0.1}}
    assert found.leaves["model/b"].offset == 64
    assert found.leaves["model/b"].shape == (3, 4)
    assert found.size == 4096
    assert found.segments[0].crc32 == (123,)


def test_it_is_plain_json_with_the_step():
    assert json.loads(a_manifest())["step"] == 7


def test_floats_keep_their_bits():
    values = [0.1 + 0.2, 5e-324, -0.0, math.inf, math.nan]
    back = decode(a_manifest({"x": values})).trees["x"]
    assert [value.hex() for value in back] == [value.hex() for value in values]


@pytest.mark.parametrize("cut", [2, 3, 20, 100])
def test_a_torn_manifest_is_damaged(cut):
    with pytest.raises(Damaged, match="incomplete or was changed"):
        decode(a_manifest()[:-cut])


def test_every_changed_byte_is_noticed():
    raw = a_manifest()
    for place in range(len(raw) - 1):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        with pytest.raises(Damaged):
            decode(changed)


def sealed(body: dict) -> bytes:
    body = dict(body)
    body.pop("crc32", None)
    head = {key: body[key] for key in body if key not in {"segments", "leaves", "schema"}}
    return encode({**head, "schema": body["schema"]}, {"segments": [], "leaves": body["leaves"]}, [])


def test_a_leaf_outside_of_its_segment_is_damage():
    body = json.loads(a_manifest())
    with pytest.raises(Damaged):
        decode(sealed(body))


def test_another_schema_is_refused_with_its_number():
    raw = encode({"step": 1, "saved_at": 1, "trees": {}, "schema": 99}, {"segments": [], "leaves": []}, [])
    with pytest.raises(Damaged, match="99"):
        decode(raw)


def test_a_segment_elsewhere_is_refused():
    table = {"segments": [["../x.bin", 0, 0]], "leaves": []}
    with pytest.raises(Damaged, match="outside"):
        decode(encode({"step": 1, "saved_at": 1, "trees": {}}, table, [[]]))
