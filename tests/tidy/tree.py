"""Finds the files that the rules look at, and writes down what a rule found."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "windfall"

#: Folders that tools make. git is not asked, because a file counts before it is added.
MADE_BY_TOOLS = {
    ".git",
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    ".windfall",
    "__pycache__",
    "build",
    "dist",
    "bench/results",
    "htmlcov",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule."""

    where: str
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.instead}"


def report(violations: Iterable[Violation]) -> str:
    """The violations as a text for pytest, one to a line, and empty when there is none."""
    return "\n".join(str(violation) for violation in violations)


def shown(path: Path) -> str:
    """The path as messages show it: from the root of the repository where it lies inside."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()


def files_under(folder: Path, suffix: str = "") -> Iterator[Path]:
    """All files below a folder in a stable order, without what tools made."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not _made_by_tools(Path(place) / f))
        for name in sorted(names):
            # In a worktree `.git` is a file.
            if name.endswith(suffix) and name != ".git":
                yield Path(place) / name


def _made_by_tools(folder: Path) -> bool:
    return bool({folder.name, shown(folder)} & MADE_BY_TOOLS) or folder.suffix == ".egg-info"


def parsed(path: Path) -> ast.Module:
    """The syntax tree of one Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
