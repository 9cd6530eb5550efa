"""Rounds over Flower: a ServerApp and a ClientApp around the parties' directories.

Needs the extra ``fedforget[flower]``.  Messages are those of :mod:`fedforget.protocol`: signed
bytes that Flower carries without looking into them.
"""
