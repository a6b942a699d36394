"""`roost serve`: a supervisor, its worker processes, and what they serve."""
