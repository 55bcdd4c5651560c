"""The program inside the benchmark's jobs: measures, and writes each result as one line to the job's log.

Runs under the user's own Python (3.10 or newer, with numpy), which need not have Windfall: it travels as a zip in the
job's command. So it imports nothing of ours but itself.
"""
