"""RateLimit: how often a key may do something."""
