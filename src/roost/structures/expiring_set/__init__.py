"""Set whose members expire."""
