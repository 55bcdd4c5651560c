"""What a job's time went into and what it cost, from its time stamps alone.

Functional core: no I/O, no clock, no randomness, no environment.
"""
