"""Times the speed cases: benchmark runs of the submission beside its baselines, which pytest-benchmark records."""
