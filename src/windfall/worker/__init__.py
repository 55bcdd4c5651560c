"""What runs beside the user's own code: the loop of a warm worker, and the server of a model.

Like windfall.checkpoint it imports nothing else of ours, and nobody of ours imports it: `calling.py` and
`model_server.py` are handed to the user's Python as text, so that they run with whichever Python the job names, also
where Windfall is not installed.
"""
