"""Finds likely problems of a job definition or a compute environment before they occur.

Rules over AWS's own documents. Nothing is refused here: what cannot work at all is refused at registration.
"""
