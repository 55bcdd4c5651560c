"""Plays the people that docs/security.md speaks of, against real daemons."""
