"""Zones by name, and what is suggested for a name that is none."""

from __future__ import annotations

import pytest

from windfall.daemon.time_zones import near_names, zone_named
from windfall.schedules.errors import UnknownZone


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Etc/GMT+5"])
def test_a_zone_is_found_by_its_name(name):
    assert str(zone_named(name)) == name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Berlin", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("Asia/Tokio", "Asia/Tokyo"),
        ("US/Pacifc", "US/Pacific"),
    ],
)
def test_a_near_name_is_suggested_first(name, meant):
    assert near_names(name)[0] == meant
    with pytest.raises(
        UnknownZone, match=f"Invalid ScheduleExpressionTimezone '{name}'.*did you mean {meant}"
    ):
        zone_named(name)


def test_the_case_of_a_name_is_all_that_is_wrong():
    assert near_names("europe/berlin") == ["Europe/Berlin"]


@pytest.mark.parametrize(
    "name", ["", "Europe/", "../../etc/passwd", "/etc/localtime", "a\0b", "x" * 300, "é"]
)
def test_what_is_no_name_at_all_is_refused_and_reads_no_file(name):
    with pytest.raises(UnknownZone, match="no such time zone"):
        zone_named(name)


def test_zones_whose_sign_is_turned_around_are_not_suggested():
    assert not any(name.startswith("Etc/") for name in near_names("UTC+1"))
