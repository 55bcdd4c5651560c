"""The drill: real trainings under a real daemon, interrupted at every stage of their lives, compared bit for bit."""
