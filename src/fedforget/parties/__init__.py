"""Clients and a server that last: directories with a store, keys, receipts and a log."""
