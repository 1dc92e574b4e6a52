"""Verdicts: pure functions from values to values; no process, GPU or clock."""
