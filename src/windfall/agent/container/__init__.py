"""Attempts that are containers: a keeper process for each, and what the agent knows of it.

Nothing is imported here: a keeper starts with as little as it can.
"""
