"""The tags of a market: what they mean, and a text for every value that means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.capacity.environments import Provisioning
from windfall.capacity.market_tags import MarketTags, market_tags_of, parse_market_tags
from windfall.jobs.errors import Invalid

SPOT = Provisioning.SPOT
KEYS = ("mtbi-s", "trace", "interrupt-at", "seed", "boot-s", "notice-s", "capacity", "sudden")


def parse(provisioning: Provisioning = SPOT, **tags: str) -> MarketTags:
    return parse_market_tags(
        {f"windfall:{key.replace('_', '-')}": value for key, value in tags.items()}, provisioning
    )


def test_without_tags_nothing_is_said():
    assert parse() == MarketTags()
    assert parse_market_tags({"team": "ml", "windfall:engine": "simulated"}, SPOT) == MarketTags()


def test_every_tag_is_read():
    read = parse(mtbi_s="90.5", seed="7", boot_s="0", notice_s="30", capacity="0", sudden="0.25")
    assert read == MarketTags(mtbi_s=90.5, seed=7, boot_s=0, notice_s=30, capacity=0, sudden=0.25)
    assert parse(trace="/traces/a.json").trace == "/traces/a.json"


@pytest.mark.parametrize("text", ["20,45,70", "20 45 70", " 20, 45  70 "])
def test_a_script_is_separated_by_commas_or_blanks(text):
    assert parse(interrupt_at=text).interrupt_at_s == (20, 45, 70)


def test_types_and_families_may_have_means_of_their_own():
    read = parse(mtbi_s="7200 p3.2xlarge=600 g5=3600")
    assert read.mtbi_of_type("p3.2xlarge") == 600
    assert read.mtbi_of_type("g5.xlarge") == 3600
    assert read.mtbi_of_type("p3.8xlarge") == 7200
    assert parse(mtbi_s="g5=3600").mtbi_of_type("p3.2xlarge") is None


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        ({"mtbi_s": "0"}, "above 0"),
        ({"mtbi_s": "nan"}, "above 0"),
        ({"mtbi_s": ""}, "above 0"),
        ({"mtbi_s": "=5"}, "above 0"),
        ({"mtbi_s": "P3!=5"}, "above 0"),
        ({"interrupt_at": ""}, "a list of seconds"),
        ({"interrupt_at": "20,-1"}, "between 0 and 31,536,000"),
        ({"interrupt_at": "20;30"}, "a number of seconds"),
        ({"trace": "relative.json"}, "absolute path"),
        ({"seed": "-1"}, "a whole number"),
        ({"seed": "1.5"}, "a whole number"),
        ({"seed": "²"}, "a whole number"),
        ({"boot_s": "soon"}, "a number of seconds"),
        ({"notice_s": "inf"}, "a number of seconds"),
        ({"capacity": "100001"}, "between 0 and 100,000"),
        ({"sudden": "1.1"}, "between 0 and 1"),
        ({"mtbi_s": "5", "trace": "/t"}, "windfall:mtbi-s and windfall:trace contradict"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_what_is_allowed(tags, text):
    with pytest.raises(Invalid) as refused:
        parse(**tags)
    assert text in str(refused.value)
    assert "windfall:" in str(refused.value)


@pytest.mark.parametrize("key", ["mtbi_s", "interrupt_at", "notice_s", "sudden"])
@pytest.mark.parametrize("kind", [Provisioning.EC2, Provisioning.FARGATE, Provisioning.UNMANAGED])
def test_capacity_that_is_not_taken_away_has_no_interruptions(key, kind):
    with pytest.raises(Invalid, match="use type SPOT"):
        parse(kind, **{key: "1"})


def test_any_environment_may_boot_slowly_or_be_scarce():
    assert parse(Provisioning.EC2, boot_s="3", capacity="2", seed="1").capacity == 2


def test_the_keys_of_a_market_are_known():
    assert market_tags_of({"windfall:engine": "x", "a": "b"}) == []
    assert market_tags_of({f"windfall:{key}": "" for key in KEYS}) == [f"windfall:{key}" for key in KEYS]


def test_the_page_has_every_tag():
    page = (Path(__file__).parents[3] / "docs" / "spot.md").read_text()
    assert [key for key in KEYS if f"| `windfall:{key}` |" not in page] == []


@given(st.dictionaries(st.sampled_from([f"windfall:{key}" for key in KEYS]), st.text(max_size=30)))
def test_any_text_is_read_or_refused(tags):
    text = None
    try:
        read = parse_market_tags(tags, SPOT)
    except Invalid as refused:
        read, text = None, str(refused)
    assert isinstance(read, MarketTags) if text is None else "windfall:" in text
