"""AWS STS, as much of it as clients ask for before they begin: who am I."""
