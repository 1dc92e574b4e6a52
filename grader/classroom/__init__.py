"""A class: who handed in what, the gradings of all of it, and the grades that come of them."""
