"""The calendar: when schedules are due, and what a tick of one is.

Part of the functional core: no clock, no I/O. What is done at a tick is control's.
"""
