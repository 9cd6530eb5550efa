"""Datasets and their division among clients, for experiments."""
