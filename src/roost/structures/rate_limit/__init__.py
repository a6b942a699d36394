"""RateLimit: how often somebody may."""
