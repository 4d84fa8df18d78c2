"""Real models in the loop: providers, a budget, a journal of what was paid, a planner, runs and the preflight."""
