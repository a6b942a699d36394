"""`roost cap`: tables of the application's own, kept short in place."""
