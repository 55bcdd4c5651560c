"""How amounts and times are written for people: thousands separated, singular or plural, times in UTC.

The standard library's dates are not used here, because they also read the clock.
"""

from __future__ import annotations

from enum import StrEnum

from windfall.jobs.resources import Resources


class Resource(StrEnum):
    """What a job can request too much of."""

    GPUS = "gpus"
    VCPUS = "vcpus"
    MEMORY = "memory"

    def of(self, amount: Resources) -> float:
        """The amount of this resource."""
        if self is Resource.GPUS:
            return amount.gpus
        return amount.vcpus if self is Resource.VCPUS else amount.memory_mib


def number(amount: float) -> str:
    """A number with its thousands separated and no needless decimals."""
    return f"{int(amount):,}" if amount == int(amount) else f"{amount:,.2f}".rstrip("0")


def amount_of(resource: Resource, amount: float) -> str:
    """An amount with its unit: `1 GPU`, `2.5 vCPUs`, `14,000 MiB of memory`."""
    if resource is Resource.MEMORY:
        return f"{number(amount)} MiB of memory"
    unit = "GPU" if resource is Resource.GPUS else "vCPU"
    return f"{number(amount)} {unit}" if amount == 1 else f"{number(amount)} {unit}s"


def all_of(amount: Resources) -> str:
    """A whole need in words, without GPUs if it has none."""
    amounts = [amount_of(Resource.VCPUS, amount.vcpus), amount_of(Resource.MEMORY, amount.memory_mib)]
    if amount.gpus:
        amounts.insert(0, amount_of(Resource.GPUS, amount.gpus))
    return f"{', '.join(amounts[:-1])} and {amounts[-1]}"


def counted(count: int, singular: str, plural: str) -> str:
    """`1 job`, `1,000 jobs`."""
    return f"{count:,} {singular if count == 1 else plural}"


def listed(names: tuple[str, ...]) -> str:
    """Names in a row, the last after an `or`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def utc(at: int) -> str:
    """A time in milliseconds since the epoch, as `2026-01-31 08:30:00 UTC`."""
    days, second = divmod(at // 1000, 86_400)
    # Years are counted from March, so that the leap day is the last day of the year.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * from_march + 2) // 5 + 1
    month = from_march + 3 if from_march < 10 else from_march - 9
    year = era * 400 + year_of_era + (1 if month <= 2 else 0)
    hour, minute = second // 3600, second % 3600 // 60
    return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second % 60:02} UTC"
