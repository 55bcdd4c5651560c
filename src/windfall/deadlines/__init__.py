"""Deadlines on capacity that can be taken away: when to use spot, to wait, to pay for on-demand capacity.

Numbers in, an action out. Must not know jobs, queues or machines: control/ measures, and acts on the answer.
"""
