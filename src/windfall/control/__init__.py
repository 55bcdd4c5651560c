"""The reactor: what happens when. State, event and time go in; changes and instructions come out.

`ports.py` names what the outside must offer. Nothing here does I/O, reads a clock or draws a random number.
"""
