"""Lock files: a choice printed as TOML."""
