"""Ring whose rows leave by themselves."""
