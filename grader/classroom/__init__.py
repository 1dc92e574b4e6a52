"""A class: its students and their hand-ins, the gradings of the hand-ins, and the grades."""
