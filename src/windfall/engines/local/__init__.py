"""The local engine: this host is the machine, and one agent process on it starts the attempts."""
