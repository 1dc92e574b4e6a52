"""Entrants, the judge's ends of workers: start, jail, ask, watch, freeze and kill the process, and share an arena
with it.
"""
