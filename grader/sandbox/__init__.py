"""Where the judge runs."""
