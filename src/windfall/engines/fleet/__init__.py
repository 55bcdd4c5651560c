"""Engines over many machines: one agent on each, reached over any Reach.

`engine.py` is the Engine port; `machines.py` knows which machine has which instances and attempts, and `standing.py`
whether a machine may be used. None of them knows SSH or Ray.
"""
