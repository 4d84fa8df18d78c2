"""The shipped domains, one TOML file each."""
