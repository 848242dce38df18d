"""The network that a script gets: what it may reach, and how the server carries it there."""
