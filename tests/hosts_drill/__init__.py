"""The drill over hosts: real jobs on machines with a real sshd, which are killed, cut off and drained meanwhile."""
