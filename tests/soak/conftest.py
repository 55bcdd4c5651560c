"""Daemons for the long attacks."""

from __future__ import annotations

from tests.acceptance.conftest import fresh

__all__ = ["fresh"]
