"""The client: what an agent keeps, when it evicts, and how its planner complies."""
