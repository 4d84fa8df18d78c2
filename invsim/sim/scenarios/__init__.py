"""The shipped scenarios, one TOML manifest each."""
