"""Ring whose rows expire."""
