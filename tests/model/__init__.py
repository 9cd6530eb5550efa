"""The rules of the trusted protocol as a model small enough to enumerate.

``rules``      what an honest client does at each event; every rule is a flag that can be off
``knowledge``  what sums tell, as linear algebra over symbols for inputs
``world``      all moves that any server has, with colluders, restores and operators
``attempt``    one attempt from the inside: every view that a server may show to every client
``operators``  an honest server, vanishing members and the commands of operators
``explorer``   breadth-first search with traces in plain English
``scenarios``  what is explored, and which rule is switched off where

Nothing here imports fedforget: the model is written from the text of the rules.
"""
