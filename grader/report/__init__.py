"""What is told: the report's models and its formats."""
