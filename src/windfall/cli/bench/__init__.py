"""`windfall bench gpu`: the CPU and the GPU of this machine side by side, measured by Batch jobs.

`suite/` is what runs inside the jobs; the rest submits it, reads what it wrote and says what that means.
"""
