"""What is likely to go wrong with a job definition or a compute environment, found before it does.

Rules over AWS's own documents. Nothing is refused here: what cannot work at all is refused where it is registered.
"""
