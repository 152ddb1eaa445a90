"""Plans and their runs."""
