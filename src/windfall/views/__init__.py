"""The read side: values of the core in, plain JSON out. Pure: the daemon reads the store, its files and the state."""
