"""Hosts that the user lists: how agents come to them, and how they are reached, by the system's own ssh."""
