"""Commands and replies keep their values on the way from one daemon to another."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import a_definition
from windfall.control.commands.calendar import StartRun
from windfall.control.events import FinishedJob, RegisterJobDefinition, SubmitJob, TerminateJob
from windfall.jobs.errors import Conflict, Invalid, MissingParameter, NotFound, Rejected
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.states import FAILED
from windfall.store import forwarded_commands
from windfall.store.errors import DamagedRecord

COMMANDS = forwarded_commands._commands()


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=COMMANDS)
def test_every_command_can_be_read_again(kind):
    """StartRun is the leader's own and never sent."""
    fields = msgspec.inspect.type_info(kind).fields
    untyped = [field.name for field in fields if isinstance(field.type, msgspec.inspect.AnyType)]
    assert msgspec.json.Decoder(kind).type is kind
    assert untyped == (["command"] if kind is StartRun else []), "its value would be another one on arrival"


@pytest.mark.parametrize(
    "command",
    [
        SubmitJob(
            JobId("j"),
            "n",
            QueueName("q"),
            "d",
            3,
            retry=RetryStrategy(2),
            tags={"ü": "\n"},
            consumables=(("a", 1),),
            finished=(FinishedJob(JobId("a"), FAILED, 2, b"\x05\x06"),),
        ),
        RegisterJobDefinition(a_definition()),
        TerminateJob(JobId("j"), "because"),
    ],
)
def test_a_command_arrives_as_it_was_sent(command):
    assert forwarded_commands.decoded_command(*forwarded_commands.encoded_command(command)) == command


@pytest.mark.parametrize("reply", [None, True, 7, ["a"], {"a": 1}, a_definition()])
def test_a_reply_arrives_as_it_was_given(reply):
    assert forwarded_commands.decoded_reply(forwarded_commands.encoded_reply(reply)) == reply


@pytest.mark.parametrize(
    "refusal", [Rejected("no"), Invalid("x"), NotFound("y"), Conflict("z"), MissingParameter("who")]
)
def test_a_refusal_keeps_its_class_its_text_and_what_it_carries(refusal):
    found = forwarded_commands.decoded_reply(forwarded_commands.encoded_reply(refusal))
    assert (type(found), str(found), vars(found)) == (type(refusal), str(refusal), vars(refusal))


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        '{"kind": "os:environ", "value": {}}',
        '{"kind": "windfall.store.forwarded_commands:encoded", "value": {}}',
        '{"kind": "windfall.nowhere:Thing", "value": {}}',
    ],
)
def test_a_reply_that_is_none_of_ours_is_not_believed(text):
    with pytest.raises(DamagedRecord):
        forwarded_commands.decoded_reply(text)


def test_a_refusal_of_a_class_that_is_not_known_here_is_still_a_refusal():
    assert type(forwarded_commands.decoded_reply('{"error": "Unheard", "text": "of"}')) is Rejected


@pytest.mark.parametrize(("name", "body"), [("Fly", "{}"), ("TerminateJob", "{}"), ("TerminateJob", "[")])
def test_a_command_of_another_version_is_refused(name, body):
    with pytest.raises(DamagedRecord, match=name):
        forwarded_commands.decoded_command(name, body)
