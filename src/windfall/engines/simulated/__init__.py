"""The simulated engine: a spot market on this host. Its instances are made up; the jobs on them are real processes."""
