"""The agent's companion process: it brings what staged attempts need, keeps their checkpoints safe while they run, and
takes away what they leave. All that it does can be done again; it keeps nothing that it could not lose.
"""
