"""Commands that a person runs inside a running attempt (`windfall exec`): one process of ours for each session.

The agent hands the connection on which it was asked to that process and never sees what goes over it.
"""
