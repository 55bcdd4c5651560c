"""Fields that RegisterJobDefinition and SubmitJob share: retries, timeouts, resources, environment, log
options.

Decides which values AWS allows in them and what they mean for the core. Must not know which of the two is
asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.jobs.resources import Resources
from windfall.jobs.retry import Action, ExitRule, RetryStrategy

TIMEOUT_MIN_S = 60
ATTEMPTS_MAX = 10
RULES_MAX = 5
MEMORY_MIN_MIB = 4
PRIORITY_MAX = 9999
_PATTERN_MAX = 512

_REASON_PATTERN = re.compile(r"[A-Za-z0-9.:\s]*\*?")
_CODE_PATTERN = re.compile(r"[0-9]*\*?")
_WHOLE = re.compile(r"[0-9]{1,9}")
_QUARTERS = re.compile(r"[0-9]{1,9}(?:\.(?:0|00|25|5|50|75))?")
_ACTIONS = {action.value: action for action in Action}


def retry_action(word: str) -> Action:
    """The action of a rule of evaluateOnExit, in any case."""
    action = _ACTIONS.get(word.lower())
    if action is None:
        raise client_exception(f"evaluateOnExit action must be RETRY or EXIT, got {shown(word)!r}")
    return action


def retry_strategy(sent: Mapping[str, Any] | None) -> RetryStrategy | None:
    """The strategy that a retryStrategy means, or None when it says nothing."""
    if not sent:
        return None
    attempts, rules = sent.get("attempts"), sent.get("evaluateOnExit", ())
    if attempts is None:
        if rules:
            raise client_exception("RetryAttempts must be provided with retry strategy")
        return None
    if not 1 <= attempts <= ATTEMPTS_MAX:
        raise client_exception(f"RetryAttempts must be between 1 and {ATTEMPTS_MAX}, got {attempts}")
    if len(rules) > RULES_MAX:
        raise client_exception(f"evaluateOnExit cannot have more than {RULES_MAX} rules, got {len(rules)}")
    return RetryStrategy(attempts, tuple(_exit_rule(rule) for rule in rules))


def _exit_rule(sent: Mapping[str, str]) -> ExitRule:
    action = retry_action(sent["action"])
    for member in ("onStatusReason", "onReason", "onExitCode"):
        pattern = sent.get(member)
        allowed = _CODE_PATTERN if member == "onExitCode" else _REASON_PATTERN
        if pattern is not None and (len(pattern) > _PATTERN_MAX or allowed.fullmatch(pattern) is None):
            raise client_exception(
                f"{member} {shown(pattern)!r} is not valid: use up to {_PATTERN_MAX} "
                + ("digits" if member == "onExitCode" else "letters, digits, periods, colons and white space")
                + ", and an asterisk at the end only"
            )
    return ExitRule(action, sent.get("onStatusReason"), sent.get("onReason"), sent.get("onExitCode"))


def retry_detail(strategy: RetryStrategy) -> dict[str, Any]:
    """A retryStrategy as AWS answers it: the list is always there, and actions are in lower case."""
    return {
        "attempts": strategy.attempts,
        "evaluateOnExit": [
            {
                member: text
                for member, text in (
                    ("onStatusReason", rule.on_status_reason),
                    ("onReason", rule.on_reason),
                    ("onExitCode", rule.on_exit_code),
                    ("action", rule.action.value),
                )
                if text is not None
            }
            for rule in strategy.rules
        ],
    }


def timeout_s(sent: Mapping[str, Any] | None) -> int | None:
    """The attempt duration that a timeout means, or None when it says nothing."""
    duration: int | None = sent.get("attemptDurationSeconds") if sent else None
    if duration is not None and duration < TIMEOUT_MIN_S:
        raise client_exception(
            f"attemptDurationSeconds must be at least {TIMEOUT_MIN_S} seconds, got {duration}"
        )
    return duration


def scheduling_priority(sent: int | None, member: str) -> int | None:
    """A priority within a share, or None when nothing is said."""
    if sent is not None and not 0 <= sent <= PRIORITY_MAX:
        raise client_exception(f"{member} must be between 0 and {PRIORITY_MAX}, got {sent}")
    return sent


def environment_variables(sent: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The variables by name; a later one of the same name wins."""
    variables = {}
    for entry in sent:
        name = entry.get("name")
        if not name or "=" in name:
            raise client_exception(f"Environment variable name {shown(name or '')!r} is not valid")
        if name.startswith("AWS_BATCH"):
            raise client_exception(
                f"Environment variable name {shown(name)!r} must not start with AWS_BATCH, which is reserved"
            )
        variables[name] = entry.get("value", "")
    return variables


class Amounts:
    """vCPUs, memory and GPUs as one container asks for them; None where it is silent."""

    __slots__ = ("gpus", "memory_mib", "vcpus")

    def __init__(self) -> None:
        self.vcpus: float | None = None
        self.memory_mib: int | None = None
        self.gpus: int | None = None


def amounts(container: Mapping[str, Any], *, fargate: bool = False, quarters: bool = False) -> Amounts:
    """What `resourceRequirements`, or the older `vcpus` and `memory`, ask for.

    `quarters` takes parts of a vCPU where nobody knows yet whether it is for Fargate.
    """
    requested = Amounts()
    for member in ("vcpus", "memory"):
        if fargate and member in container:
            raise client_exception(
                f"{member} is not applicable for Fargate. Use resource requirements instead."
            )
    if "vcpus" in container:
        requested.vcpus = _at_least(container["vcpus"], 1, "vcpus")
    if "memory" in container:
        requested.memory_mib = _at_least(container["memory"], MEMORY_MIN_MIB, "memory")
    seen = set()
    for requirement in container.get("resourceRequirements", ()):
        kind, value = requirement["type"], requirement["value"]
        if (
            kind in seen
            or (kind == "VCPU" and "vcpus" in container)
            or (kind == "MEMORY" and "memory" in container)
        ):
            raise client_exception(f"Resource {kind} is provided more than once")
        seen.add(kind)
        if kind == "VCPU":
            requested.vcpus = _vcpus(value, quarters=fargate or quarters)
        elif kind == "MEMORY":
            requested.memory_mib = _at_least(_whole(value, kind), MEMORY_MIN_MIB, "MEMORY")
        elif fargate:
            raise client_exception("GPU is not applicable for Fargate.")
        else:
            requested.gpus = _at_least(_whole(value, kind), 1, "GPU")
    return requested


def _vcpus(value: str, *, quarters: bool) -> float:
    # Whole vCPUs on EC2; Fargate sells quarters of one too.
    if not quarters:
        return _at_least(_whole(value, "VCPU"), 1, "VCPU")
    if _QUARTERS.fullmatch(value) is None or float(value) <= 0:
        raise _not_numeric(value, "VCPU")
    return float(value)


def _whole(value: str, kind: str) -> int:
    if _WHOLE.fullmatch(value) is None:
        raise _not_numeric(value, kind)
    return int(value)


def _not_numeric(value: str, kind: str) -> Exception:
    return client_exception(
        f"Value {shown(value)} for type {kind} in resourceRequirement is not valid."
        " Please provide a numeric value."
    )


def _at_least(value: int, least: int, what: str) -> int:
    if value < least:
        raise client_exception(f"{what} must be at least {least}, got {value}")
    return value


def amounts_detail(sent: Mapping[str, Any], resources: Resources) -> dict[str, Any]:
    """The job's amounts in the members that its definition used: `vcpus` and `memory`, or requirements."""
    detail: dict[str, Any] = {}
    requirements = {entry["type"]: entry["value"] for entry in sent.get("resourceRequirements", ())}
    vcpus = f"{resources.vcpus:.2f}".rstrip("0").rstrip(".")
    if "vcpus" in sent:
        detail["vcpus"] = int(resources.vcpus)
    else:
        requirements["VCPU"] = vcpus
    if "memory" in sent:
        detail["memory"] = resources.memory_mib
    else:
        requirements["MEMORY"] = str(resources.memory_mib)
    if resources.gpus:
        requirements["GPU"] = str(resources.gpus)
    detail["resourceRequirements"] = [{"type": kind, "value": value} for kind, value in requirements.items()]
    return detail
