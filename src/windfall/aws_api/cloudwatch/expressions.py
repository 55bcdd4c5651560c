"""Metric math: the four operations over series and numbers, and SUM, AVG, MIN, MAX of them.

Decides what an expression means; what it does not know is refused by name. Must not know where series come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import fsum

from windfall.aws_api.cloudwatch.errors import invalid_value

#: Values by the beginning of their period.
Series = dict[int, float]
Value = float | Series
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?)|([A-Za-z_][A-Za-z0-9_]*)|([-+*/(),\[\]]))")
_DEPTH_MOST = 50
_REDUCE: dict[str, Callable[[list[float]], float]] = {
    "SUM": fsum,
    "AVG": lambda values: fsum(values) / len(values),
    "MIN": min,
    "MAX": max,
}


def evaluate(expression: str, series: Mapping[str, Series]) -> Series:
    """The series that an expression makes of others; periods that one of them lacks are left out."""
    parser = _Parser(_tokens(expression), series, expression)
    value = parser.sum_of(0)
    if parser.left:
        raise _refused(expression, f"{parser.next()!r} is not expected there")
    if isinstance(value, float):
        return {at: value for values in series.values() for at in values}
    return value


def names_in(expression: str) -> set[str]:
    """The ids that an expression speaks of."""
    return {token for token in _tokens(expression) if token[0].isalpha() and token.upper() not in _REDUCE}


def _tokens(expression: str) -> list[str]:
    tokens, place = [], 0
    text = expression.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _refused(expression, f"{text[place : place + 20]!r} is not understood")
        tokens.append(match.group().strip())
        place = match.end()
    return tokens


def _refused(expression: str, why: str) -> Exception:
    return invalid_value(
        f"Error in expression {expression[:200]!r}: {why}. Known are ids of metrics, numbers, + - * / ( ), and"
        " SUM, AVG, MIN, MAX of a metric or of [m1, m2]."
    )


class _Parser:
    def __init__(self, tokens: list[str], series: Mapping[str, Series], expression: str) -> None:
        self._tokens = tokens
        self._place = 0
        self._series = series
        self._expression = expression

    @property
    def left(self) -> bool:
        return self._place < len(self._tokens)

    def next(self) -> str:
        if not self.left:
            raise _refused(self._expression, "it ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _take(self, *wanted: str) -> str | None:
        if self.left and self._tokens[self._place] in wanted:
            return self.next()
        return None

    def _expect(self, wanted: str) -> None:
        if self._take(wanted) is None:
            raise _refused(self._expression, f"{wanted!r} is missing")

    def sum_of(self, depth: int) -> Value:
        if depth > _DEPTH_MOST:
            raise _refused(self._expression, "it is nested too deeply")
        value = self._product(depth)
        while sign := self._take("+", "-"):
            value = _apply(sign, value, self._product(depth))
        return value

    def _product(self, depth: int) -> Value:
        value = self._factor(depth)
        while sign := self._take("*", "/"):
            value = _apply(sign, value, self._factor(depth))
        return value

    def _factor(self, depth: int) -> Value:
        if self._take("-"):
            return _apply("-", 0.0, self._factor(depth + 1))
        if self._take("("):
            value = self.sum_of(depth + 1)
            self._expect(")")
            return value
        token = self.next()
        if token[0].isdigit():
            return float(token)
        if token.upper() in _REDUCE and self._take("("):
            value = self._reduced(token.upper(), depth)
            self._expect(")")
            return value
        if token in self._series:
            return self._series[token]
        raise _refused(self._expression, f"{token!r} is not an id of this request")

    def _reduced(self, function: str, depth: int) -> Value:
        """Over the periods of one series a number; over several series a series."""
        reduce = _REDUCE[function]
        if self._take("[") is None:
            operand = self.sum_of(depth + 1)
            if isinstance(operand, float):
                return operand
            return reduce(list(operand.values())) if operand else {}
        several = [self.sum_of(depth + 1)]
        while self._take(","):
            several.append(self.sum_of(depth + 1))
        self._expect("]")
        series = [values for values in several if not isinstance(values, float)]
        moments = sorted({at for values in series for at in values})
        return {at: reduce([values[at] for values in series if at in values]) for at in moments}


def _apply(sign: str, left: Value, right: Value) -> Value:
    if isinstance(left, float) and isinstance(right, float):
        alone = _number(sign, left, right)
        return {} if alone is None else alone
    moments: list[int] = []
    if isinstance(left, float):
        assert isinstance(right, dict)
        moments = list(right)
    elif isinstance(right, float):
        moments = list(left)
    else:
        moments = [at for at in left if at in right]
    combined = {}
    for at in moments:
        number = _number(
            sign,
            left if isinstance(left, float) else left[at],
            right if isinstance(right, float) else right[at],
        )
        if number is not None:
            combined[at] = number
    return combined


def _number(sign: str, left: float, right: float) -> float | None:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    return left / right if right else None
