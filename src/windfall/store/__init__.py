"""Durable state behind the Store port: SQLite by default, PostgreSQL when several daemons share the work.

Decides how rounds become rows and how rows become jobs again. Must not know why anything changed.
"""
