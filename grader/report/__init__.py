"""The report: its models, its terminal views and its JSON file."""
