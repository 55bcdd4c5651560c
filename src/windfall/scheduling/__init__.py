"""From a snapshot to a plan: who starts where, what is launched, what goes away, and why a job waits.

Pure functions over values. Nothing here changes state or knows what an engine is.
"""
