"""Endpoints: what SageMaker's models, endpoints and their variants are, and where their requests go.

Part of the functional core: no clock, no I/O. A replica is a job like any other; what starts it is control's.
"""
