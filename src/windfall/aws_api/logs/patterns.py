"""Filter patterns for unstructured text: terms, "phrases", ?optional and -excluded ones.

Decides which messages a pattern lets through; case counts, and a term is found anywhere in a message. JSON,
space-delimited and regular-expression patterns are refused by name rather than misread. Must not know logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windfall.aws_api.logs.errors import InvalidParameter

_TERM = re.compile(
    r'\s*(?P<sign>[-?]?)(?:"(?P<phrase>(?:[^"\\]|\\.)*)"|(?P<word>[^\s"]+))(?=\s|$)', re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_UNSUPPORTED = {
    "{": "JSON",
    "[": "Space-delimited",
    "%": "Regular-expression",
}


@dataclass(frozen=True, slots=True)
class FilterPattern:
    """The terms of a pattern. Without any it lets everything through."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def matches(self, message: str) -> bool:
        """Return whether the message has all required, none of the excluded and one of the optional terms."""
        for term in self.required:
            if term not in message:
                return False
        for term in self.excluded:
            if term in message:
                return False
        # CloudWatch ignores optional terms beside others, so that a pattern means the same here.
        if not self.optional or self.required or self.excluded:
            return True
        return any(term in message for term in self.optional)


def parse_pattern(text: str) -> FilterPattern:
    """Read a filter pattern; raise InvalidParameter for one that is malformed or of an unsupported kind."""
    text = text.strip()
    kind = _UNSUPPORTED.get(text[:1])
    if kind is not None:
        raise InvalidParameter(
            f"{kind} filter patterns are not supported. "
            'Use terms, "quoted phrases", ?optional and -excluded terms, or filter what you receive.'
        )
    terms: dict[str, list[str]] = {"": [], "?": [], "-": []}
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        term = "" if match is None else match["word"] or _ESCAPE.sub(r"\1", match["phrase"] or "")
        if match is None or not term or (not match["sign"] and match["word"] in ("-", "?")):
            raise InvalidParameter(
                f"Invalid filter pattern at character {position + 1}: "
                "close every double quote, and put a term behind every ? and -."
            )
        terms[match["sign"]].append(term)
        position = match.end()
    return FilterPattern(tuple(terms[""]), tuple(terms["?"]), tuple(terms["-"]))
