"""The judge: trusted. A pytest session over the assignments that owns seeds, inputs, oracle, verdicts and the report."""
