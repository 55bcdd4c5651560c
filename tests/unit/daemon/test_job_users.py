"""The range of uids that tenants get: what is refused, and what is taken where nobody says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from windfall.daemon.errors import BadSetting
from windfall.daemon.job_users import Accounts, uids_for_tenants
from windfall.jobs.job_users import UserRange

ROOT = Accounts(able=True)


def test_an_explicit_range_is_for_every_tenant():
    assert uids_for_tenants("300000-300009", ROOT) == UserRange(300_000, 300_009, for_default=True)


def test_by_default_all_tenants_but_the_first_have_one():
    assert uids_for_tenants(None, ROOT) == UserRange(200_000, 200_999)


@pytest.mark.parametrize(
    "taken", [(200_000, 200_001), (165_536, 231_072), (200_999, 201_000), (100_000, 10**6)]
)
def test_uids_that_somebody_has_are_not_taken(taken):
    known = Accounts(able=True, taken=(("pat's", *taken),))
    assert uids_for_tenants(None, known) == UserRange(2_100_000_000, 2_100_000_999)
    with pytest.raises(BadSetting, match="uids that are free on this host; some of 200000-200999 are pat's"):
        uids_for_tenants("200000-200999", known)


def test_a_host_whose_uids_are_all_given_away_has_none_for_tenants():
    assert uids_for_tenants(None, Accounts(able=True, taken=(("pat's", 0, 2**32),))) is None


@pytest.mark.parametrize(
    "setting",
    [
        "0-10",
        "999-2000",
        "300009-300000",
        "65000-66000",
        "65535-65535",
        "4294967290-4294967295",
        "1000-9999999999",
    ],
)
def test_a_range_that_means_something_else_is_refused(setting):
    with pytest.raises(BadSetting, match="range of uids from 1000 to 4294967293 without 65534 and 65535"):
        uids_for_tenants(setting, ROOT)


def test_who_is_not_root_has_none():
    assert uids_for_tenants(None, Accounts(able=False)) is None
    with pytest.raises(BadSetting, match="needs a daemon that runs as root"):
        uids_for_tenants("300000-300009", Accounts(able=False))


def test_none_is_none():
    assert uids_for_tenants("none", ROOT) is None
    assert uids_for_tenants("none") is None


def test_this_host_is_looked_at():
    found = Accounts.of_this_host()
    assert found.able is (os.geteuid() == 0)
    assert any(low <= os.getuid() < high for _, low, high in found.taken)


def test_in_a_container_that_maps_few_uids_there_are_none_for_tenants(require):
    require(os.geteuid() == 0 and shutil.which("unshare") is not None, "needs root and unshare")
    look = "from windfall.daemon.job_users import *; print(uids_for_tenants(None)); uids_for_tenants('200000-200009')"
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", look]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("user namespaces cannot be made here")
    assert done.stdout == "None\n"
    assert "some of 200000-200009 are missing in this container" in done.stderr


def test_what_people_are_told():
    assert UserRange(5, 9).words("nobody") == "nobody, those of other tenants as a uid of 5-9 each"
    assert UserRange(5, 9, for_default=True).words("nobody") == "a uid of 5-9 for each tenant"
