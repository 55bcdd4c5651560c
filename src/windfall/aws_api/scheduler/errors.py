"""What EventBridge Scheduler refuses, with the codes and statuses of its model.

    ApiError (of the protocol)
    `-- SchedulerError               base of everything raised in this folder
        |-- InvalidRequest           ValidationException, 400
        |-- ScheduleNotFound         404
        |-- InConflict               ConflictException, 409
        `-- QuotaExceeded            ServiceQuotaExceededException, 402

Decides codes and how the core's refusals become them. Must not know when something is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from windfall.aws_api.protocol.errors import ApiError
from windfall.jobs.errors import Conflict, NotFound, Rejected
from windfall.schedules.errors import LimitReached

_SHOWN_CHARACTERS = 256


class SchedulerError(ApiError):
    """Base of every error that this folder raises."""


class InvalidRequest(SchedulerError):
    """A request that contradicts itself, or asks for what Windfall does not support."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


class ScheduleNotFound(SchedulerError):
    """No such schedule or schedule group."""

    def __init__(self, message: str) -> None:
        super().__init__("ResourceNotFoundException", message, 404)


class InConflict(SchedulerError):
    """The name is taken."""

    def __init__(self, message: str) -> None:
        super().__init__("ConflictException", message, 409)


class QuotaExceeded(SchedulerError):
    """As many as there may be."""

    def __init__(self, message: str) -> None:
        super().__init__("ServiceQuotaExceededException", message, 402)


def refusal(rejected: Rejected) -> SchedulerError:
    """The core's refusal as the wire says it."""
    kinds: tuple[tuple[type[Rejected], Callable[[str], SchedulerError]], ...] = (
        (NotFound, ScheduleNotFound),
        (Conflict, InConflict),
        (LimitReached, QuotaExceeded),
    )
    for kind, error in kinds:
        if isinstance(rejected, kind):
            return error(str(rejected))
    return InvalidRequest(str(rejected))


def with_message(error: ApiError, _request_id: str) -> ApiError:
    """The same error with its text where the model of this service has it: in `Message`."""
    error.members = {**error.members, "Message": error.message}
    return error


def shown(text: str) -> str:
    """A caller's own text, short enough for an error message."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
