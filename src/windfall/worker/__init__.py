"""What runs in the process of a warm worker, beside the user's own code.

Like windfall.checkpoint it imports nothing else of ours, and nobody of ours imports it: the agent hands `calling.py` to
the user's Python as text, so that it runs with whichever Python the job names, also where Windfall is not installed.
"""
