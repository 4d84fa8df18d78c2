"""Results for people: tables beside the published figures, and plots."""
