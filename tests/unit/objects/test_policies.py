"""Grants of storage in the language of S3's policies."""

from __future__ import annotations

import json

from windfall.jobs.storage import Grant
from windfall.objects.policies import storage_policy


def statements(*grants, **options):
    return json.loads(storage_policy(grants, **options))["Statement"]


def resources(policy, action, effect="Allow"):
    found = [part for part in policy if action in part["Action"] and part["Effect"] == effect]
    return [resource for part in found for resource in part["Resource"]]


def test_a_bucket_is_read_listed_and_if_granted_written():
    policy = statements(Grant("s3://data", write=True))
    assert resources(policy, "s3:GetObject") == ["arn:aws:s3:::data/*"]
    assert resources(policy, "s3:PutObject") == ["arn:aws:s3:::data/*"]
    assert resources(policy, "s3:ListBucket") == ["arn:aws:s3:::data"]
    assert resources(statements(Grant("s3://data")), "s3:PutObject") == []
    assert resources(statements(Grant("s3://data", write=True), writing=False), "s3:PutObject") == []


def test_a_prefix_is_whole_segments_and_listed_only_below_itself():
    policy = statements(Grant("s3://data/in/year"))
    assert resources(policy, "s3:GetObject") == ["arn:aws:s3:::data/in/year", "arn:aws:s3:::data/in/year/*"]
    (listing,) = [part for part in policy if "s3:ListBucket" in part["Action"]]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "in/year/*"}}


def test_what_is_left_out_is_denied_unless_another_grant_names_it():
    everything = Grant("s3://", write=True, but_not=("s3://theirs", "s3://mine/tenants"))
    policy = statements(everything)
    assert resources(policy, "s3:GetObject") == ["arn:aws:s3:::*/*"]
    denied = resources(policy, "s3:*", "Deny")
    assert {"arn:aws:s3:::theirs", "arn:aws:s3:::theirs/*", "arn:aws:s3:::mine/tenants/*"} <= set(denied)
    assert "arn:aws:s3:::mine" not in denied
    assert resources(statements(everything, Grant("s3://theirs")), "s3:*", "Deny") == [
        "arn:aws:s3:::mine/tenants",
        "arn:aws:s3:::mine/tenants/*",
    ]


def test_a_star_in_a_name_stands_for_itself():
    assert resources(statements(Grant("s3://data/a*")), "s3:GetObject")[1] == "arn:aws:s3:::data/a${*}/*"


def test_no_grant_is_nothing_and_no_limit_is_every_object_but_no_bucket():
    for policy in (statements(), statements(Grant("file:///srv", write=True))):
        assert policy == [{"Effect": "Deny", "Action": ["s3:*"], "Resource": ["*"]}]
    free = json.loads(storage_policy(None))["Statement"]
    assert resources(free, "s3:PutObject") == ["arn:aws:s3:::*/*"]
    assert not [part for part in free if "s3:CreateBucket" in part["Action"] or "s3:*" in part["Action"]]
