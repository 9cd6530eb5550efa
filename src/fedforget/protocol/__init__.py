"""The secure sum: what clients and the server say to each other; no sockets, clocks or files."""
