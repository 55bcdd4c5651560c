"""Finds the pages and takes out of them what can be checked: headings, links and code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, files_under

FENCE = re.compile(r"^(```+)(\w*)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every Markdown file of the repository."""
    return list(files_under(ROOT, ".md"))


def without_code_blocks(text: str) -> str:
    """The prose of a page: fenced blocks are taken out, inline code stays."""
    return FENCE.sub("", text)


def code_lines(text: str) -> Iterator[str]:
    """Every line of every shell block and every inline code span, without prompts."""
    for fence in FENCE.finditer(text):
        if fence[2] in {"", "sh", "bash", "console", "shell"}:
            yield from (line.strip().removeprefix("$ ") for line in fence[3].splitlines())
    yield from re.findall(r"`([^`\n]+)`", without_code_blocks(text))


def links(text: str) -> list[str]:
    """The targets of all links and pictures in the prose."""
    prose = re.sub(r"`[^`\n]*`", "", without_code_blocks(text))
    return re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", prose) + re.findall(
        r'(?:src|href)="([^"]+)"', prose
    )


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get, spelled as GitHub spells them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", without_code_blocks(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        repeat, number = anchor, 0
        while repeat in found:
            number += 1
            repeat = f"{anchor}-{number}"
        found.add(repeat)
    return found
