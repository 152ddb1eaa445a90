"""Plans, and their runs."""
