"""Arrays in, estimates with their Monte Carlo error out. Knows no simulator."""
