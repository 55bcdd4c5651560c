"""The part of a root agent that moves data with root's rights and the daemon's credentials, and nothing else.

Couriers and feeders run as the users of jobs. What they cannot do themselves they ask of the steward over a socket:
operations on object storage within the grants of one attempt, and the start and end of an attempt's feeder. What an
attempt may do is told to the steward by the agent alone. It opens no path that a courier names, and runs no program
that a job names.
"""
