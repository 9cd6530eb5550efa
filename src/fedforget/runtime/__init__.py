"""Where clients and a server meet."""
