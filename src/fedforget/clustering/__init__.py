"""Exact clustering that can forget: pure functions and small classes, arrays in, arrays out."""
