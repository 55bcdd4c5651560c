"""Who may use the embedded S3 server, and for what: the keys of the API as identities of SeaweedFS.

A key may do there what its role and tenant allow: an admin key everything, others use what belongs to their tenant,
read keys without changing it. SeaweedFS reloads identities at SIGHUP, but keeps those that vanish from the file, and
reads policies only when it starts. So a removed key stays listed without credentials, and a policy is used only for a
tenant whose grants have exceptions, which actions cannot express.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence

from windfall.aws_api.protocol.keys import Key, Role
from windfall.daemon.s3_secrets import AGENTS_NAME, ROOT_NAME, S3Secrets
from windfall.jobs.storage import S3, Grant, locate
from windfall.objects.policies import storage_policy

#: What belongs to which tenant.
Tenants = Mapping[str, Sequence[Grant]]
_OBJECTS = ["Read", "Write", "List", "Tagging"]
#: The role of jobs' sessions; only agents may assume it.
SESSION_ROLE = "arn:aws:iam::role/windfall-jobs"
_ACCOUNT = "000000000000"


def server_configuration(
    keys: Iterable[Key],
    tenants: Tenants,
    secrets: S3Secrets,
    *,
    before: Iterable[str] = (),
    key_service: str,
) -> str:
    """SeaweedFS's configuration of identities and of the key service, as JSON.

    `before` are the identities that the server may still know. A tenant that is not in `tenants` has no storage.
    """
    identities = [
        _identity(ROOT_NAME, (secrets.root_key_id, secrets.root_secret), ["Admin", *_OBJECTS]),
        _identity(AGENTS_NAME, (secrets.agents_key_id, secrets.agents_secret), _OBJECTS),
    ]
    for key in keys:
        # SeaweedFS cannot be given a key with a session token: it takes every token for one of its own sessions.
        valid = key.revoked_at is None and key.session_token is None
        credentials = (key.access_key_id, key.secret_access_key) if valid else None
        grants, writing = tenants.get(key.tenant, ()), key.role >= Role.SUBMIT
        if key.role is Role.ADMIN:
            identities.append(_identity(key.access_key_id, credentials, ["Admin", *_OBJECTS]))
        elif _needs_policy(grants):
            policy = _policy_name(storage_policy(grants, writing=writing))
            identities.append(_identity(key.access_key_id, credentials, policy=policy))
        else:
            identities.append(_identity(key.access_key_id, credentials, _actions(grants, writing=writing)))
    current = {identity["name"] for identity in identities}
    identities += [_identity(name, None) for name in sorted(set(before) - current)]
    provider = {"type": "openbao", "address": key_service, "token": secrets.wrapping_token}
    return json.dumps(
        {
            "identities": identities,
            "policies": [{"name": name, "content": text} for name, text in sorted(policies(tenants).items())],
            "kms": {"default_provider": ROOT_NAME, "providers": {ROOT_NAME: provider}},
        }
    )


def policies(tenants: Tenants) -> dict[str, str]:
    """The policies that the server must have been started with, by their names."""
    texts = [
        storage_policy(grants, writing=writing)
        for grants in tenants.values()
        for writing in (False, True)
        if _needs_policy(grants)
    ]
    return {_policy_name(text): text for text in texts}


def _needs_policy(grants: Sequence[Grant]) -> bool:
    return any(grant.but_not for grant in grants)


def _policy_name(text: str) -> str:
    return "windfall-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def _actions(grants: Sequence[Grant], *, writing: bool) -> list[str]:
    """What grants allow, as SeaweedFS's actions: a verb, and where."""
    actions: list[str] = []
    for grant in grants:
        place = locate(grant.uri)
        # SeaweedFS treats a star as a wildcard; only an attempt to reach further would have one in a name.
        if place.scheme != S3 or "*" in grant.uri:
            continue
        verbs = ["Read", "List", *(["Write", "Tagging"] if grant.write and writing else [])]
        path = "/".join(place.segments)
        places = {0: [""], 1: [f":{path}"]}.get(len(place.segments), [f":{path}", f":{path}/*"])
        actions += [f"{verb}{where}" for verb in verbs for where in places]
    # An identity without any action may do everything in some versions.
    return actions or ["Read:nothing-is-granted"]


def session_configuration(secrets: S3Secrets) -> str:
    """SeaweedFS's configuration of temporary credentials, as JSON: a role that only agents may assume."""
    return json.dumps(
        {
            "sts": {
                "tokenDuration": "1h",
                "maxSessionLength": "12h",
                "issuer": "windfall",
                "signingKey": secrets.sessions,
            },
            "policy": {"defaultEffect": "Deny", "storeType": "memory"},
            "roles": [
                {
                    "roleName": SESSION_ROLE.rpartition("/")[2],
                    "roleArn": SESSION_ROLE,
                    "trustPolicy": {
                        "Version": "2012-10-17",
                        "Statement": [
                            {
                                "Effect": "Allow",
                                "Principal": {"AWS": f"arn:aws:iam::{_ACCOUNT}:user/{AGENTS_NAME}"},
                                "Action": ["sts:AssumeRole"],
                            }
                        ],
                    },
                    "attachedPolicies": ["objects"],
                }
            ],
            "policies": [{"name": "objects", "document": json.loads(storage_policy(None))}],
        }
    )


def identity_names(configuration: str) -> list[str]:
    """The identities of an earlier configuration; empty if it cannot be read."""
    try:
        return [str(identity["name"]) for identity in json.loads(configuration)["identities"]]
    except (ValueError, KeyError, TypeError):
        return []


def secret_of(configuration: str, access_key_id: str) -> str | None:
    """The secret of a key in a configuration."""
    for identity in json.loads(configuration)["identities"]:
        for credential in identity["credentials"]:
            if credential["accessKey"] == access_key_id:
                return str(credential["secretKey"])
    return None


def session_secret(token: str, signing_key: str) -> str | None:
    """The secret of the session that a SeaweedFS token belongs to; None for another kind of token.

    SeaweedFS stores no sessions: it derives the secret in the same way. It also checks whether the token is valid.
    """
    try:
        claims = token.split(".")[1]
        session = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sid"]
        said = f"secret-key:{session}".encode()
        return base64.b64encode(hmac.digest(base64.b64decode(signing_key), said, "sha256")).decode()
    except (ValueError, LookupError, TypeError):
        return None


def _identity(
    name: str,
    credentials: tuple[str, str] | None,
    actions: Sequence[str] = (),
    policy: str | None = None,
) -> dict[str, object]:
    credential_list = (
        [] if credentials is None else [{"accessKey": credentials[0], "secretKey": credentials[1]}]
    )
    return {
        "name": name,
        "credentials": credential_list,
        "actions": list(actions),
        "policyNames": [] if policy is None else [policy],
    }
