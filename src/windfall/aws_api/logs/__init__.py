"""CloudWatch Logs over the log files of attempts.

Decides how bytes that a job wrote become log events with times, pages and tokens. Must not know agents,
stores or processes: it is given the folder of log files and the gate.
"""
