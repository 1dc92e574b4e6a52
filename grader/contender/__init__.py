"""The judge's end of a worker: the process that runs a submission, or a baseline, and the memory shared with it."""
