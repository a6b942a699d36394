"""Set whose members leave by themselves."""
