"""The judge's ends of workers: start, jail, ask, watch, freeze and kill a worker, and share an arena with it."""
