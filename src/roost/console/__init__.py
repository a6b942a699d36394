"""`roost console`: pages that show the structures of a database. Its libraries are the extra `roost[console]`."""
