"""`roost cap`: keeps tables of the application's own short, in place."""
