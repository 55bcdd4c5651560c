"""Warm workers: processes that outlive the children of an array which they serve, one after the other.

A child's own attempt process is a shell of one line (client.py) that waits for its exit code; so the journal,
adoption, exit codes and stops are those of every attempt. The agent gives it a socket; the other end goes to a worker's
keeper (keeper.py, a program of its own), which runs the user's process (user_process.py) or container
(container_process.py), hands it one child at a time over pipes (pipes.py), writes what it prints into the child's log,
and kills it when the child's shell is killed. pool.py decides which child gets which worker and when a worker must go;
process.py is the agent's end of one keeper; boxes.py and coming.py are about containers; commands.py says what a worker
runs.
"""
