"""What a grant of storage is in the language of S3's own policies: for keys of an S3 server, and for sessions.

Decides which of S3's actions reading and writing are. Never more than objects: buckets are made, removed and configured
by administrators. Must not know who asks, nor where the server is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from windfall.jobs.storage import ALL_BUCKETS, S3, Grant, Location, locate

_READ = ["s3:GetObject", "s3:GetObjectTagging", "s3:GetObjectVersion", "s3:GetObjectAttributes"]
_WRITE = [
    "s3:PutObject",
    "s3:PutObjectTagging",
    "s3:DeleteObject",
    "s3:DeleteObjectTagging",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
]
_LIST = ["s3:ListBucket", "s3:ListBucketVersions", "s3:ListBucketMultipartUploads"]
_LOOK = ["s3:GetBucketLocation", "s3:HeadBucket"]
_ARN = "arn:aws:s3:::"

Statement = dict[str, object]


def storage_policy(grants: Sequence[Grant] | None, *, writing: bool = True) -> str:
    """The policy, as JSON, that allows what the grants allow and nothing else; None means every object.

    Without `writing` nothing may be changed, whatever the grants say.
    """
    granted = (Grant(ALL_BUCKETS, write=True),) if grants is None else grants
    places = [(locate(grant.uri), grant) for grant in granted]
    places = [(place, grant) for place, grant in places if place.scheme == S3]
    changed = [place for place, grant in places if grant.write and writing]
    statements = [
        *_allowing(_READ, _objects(place for place, _ in places)),
        *_allowing(_WRITE, _objects(changed)),
        *_allowing([*_LIST, *_LOOK], _buckets(place for place, _ in places if len(place.segments) < 2)),
        *(_listing_below(place) for place, _ in places if len(place.segments) > 1),
        *_denying([locate(uri) for _, grant in places for uri in grant.but_not], places),
    ]
    # A policy without a statement is not taken everywhere: this one says the same.
    nothing: Statement = {"Effect": "Deny", "Action": ["s3:*"], "Resource": ["*"]}
    return json.dumps({"Version": "2012-10-17", "Statement": statements or [nothing]}, separators=(",", ":"))


def _allowing(actions: list[str], resources: list[str]) -> list[Statement]:
    return [{"Effect": "Allow", "Action": actions, "Resource": resources}] if resources else []


def _denying(left_out: list[Location], places: list[tuple[Location, Grant]]) -> list[Statement]:
    """What is left out of one grant, except where another grant names it: a denial outweighs every permission."""
    named = [place for place, grant in places if not grant.but_not]
    left_out = [place for place in left_out if not any(place.is_below(other) for other in named)]
    if not left_out:
        return []
    denied = [*_objects(left_out), *_buckets(place for place in left_out if len(place.segments) == 1)]
    statements: list[Statement] = [{"Effect": "Deny", "Action": ["s3:*"], "Resource": denied}]
    return [*statements, *(_hiding(place) for place in left_out if len(place.segments) > 1)]


def _hiding(place: Location) -> Statement:
    """A denial of listings in a place. One from further up still shows names: not every server can tell them apart."""
    prefix = _literal("/".join(place.segments[1:]))
    condition = {"StringLike": {"s3:prefix": [prefix, f"{prefix}/*"]}}
    resource = [f"{_ARN}{_literal(place.segments[0])}"]
    return {"Effect": "Deny", "Action": _LIST, "Resource": resource, "Condition": condition}


def _listing_below(place: Location) -> Statement:
    bucket, prefix = place.segments[0], "/".join(place.segments[1:])
    condition = {"StringLike": {"s3:prefix": f"{_literal(prefix)}/*"}}
    return {
        "Effect": "Allow",
        "Action": _LIST,
        "Resource": [f"{_ARN}{_literal(bucket)}"],
        "Condition": condition,
    }


def _objects(places: Iterable[Location]) -> list[str]:
    resources: list[str] = []
    for place in places:
        path = _literal("/".join(place.segments))
        if len(place.segments) > 1:
            resources.append(f"{_ARN}{path}")
        resources.append(f"{_ARN}{path}/*" if path else f"{_ARN}*/*")
    return resources


def _buckets(places: Iterable[Location]) -> list[str]:
    return [f"{_ARN}{_literal(place.segments[0])}" if place.segments else f"{_ARN}*" for place in places]


def _literal(text: str) -> str:
    """A name in which no character stands for others."""
    return text.replace("*", "${*}").replace("?", "${?}")
