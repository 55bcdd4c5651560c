"""A submit key, and the jobs that it starts: they get nothing of the daemon."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.daemon import a_definition
from tests.security.attacked import QUEUE, Attacked, refusal

CHECKPOINTED: dict[str, Any] = {
    "tags": {"windfall:checkpoint": "true"},
    "retryStrategy": {"attempts": 2},
}
#: What an attempt does before it fails, and the next one: it looks for what was stored and restored meanwhile.
SWAPPED = """
if [ $AWS_BATCH_JOB_ATTEMPT = 1 ]; then
  echo before > $WINDFALL_CHECKPOINT_DIR/before
  mv $WINDFALL_CHECKPOINT_DIR $WINDFALL_CHECKPOINT_DIR.mine && ln -s {target} $WINDFALL_CHECKPOINT_DIR
  sleep 4
  exit 1
fi
find $WINDFALL_CHECKPOINT_DIR -type f -exec cat {{}} +
"""


def test_a_link_in_the_place_of_the_checkpoint_directory_brings_nothing_of_the_daemons(attacked: Attacked):
    secrets = attacked.windfall.data / "secrets"
    token = attacked.windfall.root / "token"
    token.write_text("only-the-administrators")
    token.chmod(0o644)
    attacked.windfall.windfall("secret", "set", "token", "--from-file", str(token))
    log = attacked.run(attacked.client(attacked.key()), SWAPPED.format(target=secrets), **CHECKPOINTED)
    assert "only-the-administrators" not in log


@pytest.mark.parametrize(
    "uri",
    [
        "file:///proc/self/root/etc",
        "{data}",
        "file://{data}/objects/checkpoints/../..",
        "file://{data}/objects/checkpoints/%2e%2e/%2e%2e",
        "file://localhost/etc",
        "FILE:///etc",
        "s3://../etc",
    ],
)
def test_no_spelling_of_a_uri_names_a_directory_of_the_host(attacked: Attacked, uri: str):
    batch = attacked.client(attacked.key())
    named = {"windfall:checkpoint": uri.format(data=attacked.windfall.data)}
    a_definition(batch, "spelled", "true")
    code, _ = refusal(batch.submit_job, jobName="x", jobQueue=QUEUE, jobDefinition="spelled", tags=named)
    assert code == "ClientException"


@pytest.mark.parametrize("repository", ["file:///etc", "/etc", "ext::sh -c id", "--upload-pack=id", "fd::7"])
def test_git_fetches_nothing_of_the_host(attacked: Attacked, repository: str):
    batch = attacked.client(attacked.key())
    a_definition(batch, "fetched", "true")
    tags = {"windfall:git": f"{repository}@main"}
    code, _ = refusal(batch.submit_job, jobName="x", jobQueue=QUEUE, jobDefinition="fetched", tags=tags)
    assert code == "ClientException"


def test_a_tag_on_a_running_job_opens_nothing_to_its_next_attempt(attacked: Attacked):
    batch = attacked.client(attacked.key())
    script = "test $AWS_BATCH_JOB_ATTEMPT = 2 || sleep 600; ls -a $WINDFALL_CHECKPOINT_DIR"
    job = attacked.submitted(batch, script, **CHECKPOINTED)
    running = attacked.windfall.wait_for([job], "RUNNING")[0]
    batch.tag_resource(resourceArn=running["jobArn"], tags={"windfall:checkpoint": "file:///etc"})
    attacked.windfall.windfall("interrupt", job, "--notice", "0")
    assert attacked.log(job).split() == [".", ".."]


def test_what_hides_the_data_directory_cannot_be_taken_away(attacked: Attacked):
    data = attacked.windfall.data
    attacked.key(tenant="vision")  # of several tenants every job has a sandbox
    script = f"""
mkdir m
unshare -Urm sh -c "umount -l {data}; mount --bind / m; ls {data} m{data}"
unshare -Urm sh -c "mount --rbind / m; umount -l m{data}; ls m{data}"
nsenter -t 1 -m ls {data}
ls /proc/1/root{data}
"""
    assert "keys.json" not in attacked.run(attacked.client(attacked.key()), script)


def test_a_shared_definition_is_changed_by_administrators_alone(attacked: Attacked):
    a_definition(attacked.admin, "shared-tool", "echo", "of the administrators")
    batch, vision = attacked.client(attacked.key()), attacked.client(attacked.key(tenant="vision"))
    code, _ = refusal(batch.deregister_job_definition, jobDefinition="shared-tool:1")
    assert code == "AccessDeniedException"
    # A revision of a submit key is its own tenant's, and takes the shared one's place for nobody else.
    a_definition(batch, "shared-tool", "echo", "of somebody else")
    job = vision.submit_job(jobName="x", jobQueue=QUEUE, jobDefinition="shared-tool")["jobId"]
    assert attacked.log(job).strip() == "of the administrators"


@pytest.mark.parametrize("kind", ["job-queue", "compute-environment"])
def test_tags_of_shared_things_are_changed_by_administrators_alone(attacked: Attacked, kind: str):
    arn = f"arn:aws:batch:us-east-1:123456789012:{kind}/{QUEUE}"
    attacked.admin.tag_resource(resourceArn=arn, tags={"owner": "administrators"})
    for tenant in ("default", "vision"):
        batch = attacked.client(attacked.key(tenant=tenant))
        assert (
            refusal(batch.tag_resource, resourceArn=arn, tags={"owner": "me"})[0] == "AccessDeniedException"
        )
        assert refusal(batch.untag_resource, resourceArn=arn, tagKeys=["owner"])[0] == "AccessDeniedException"
    assert attacked.admin.list_tags_for_resource(resourceArn=arn)["tags"] == {"owner": "administrators"}


def test_a_terminal_that_shows_a_log_obeys_nothing_in_it(attacked: Attacked):
    batch = attacked.client(attacked.key())
    said = (
        r"printf '\033]0;title\007\033[2J\033P1$r\033\\\302\233 31m\302\2350;x\302\234\r\b\342\200\256done'"
    )
    job = attacked.submitted(batch, said)
    attacked.windfall.wait_for([job])
    shown = attacked.windfall.windfall("logs", job).stdout
    assert not set(shown) & set("\x1b\x07\x08\x9b\x9c\x9d\u202e")
    assert "done" in shown
