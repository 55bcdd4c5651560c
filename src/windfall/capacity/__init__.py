"""What can run a job: compute environments, job queues, machines and instances, and what they have left.

Pure values and sums. Nothing here knows how an instance is launched or in which order jobs take it.
"""
