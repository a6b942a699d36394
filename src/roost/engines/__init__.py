"""Engines: thin drivers that connect, run statements and map errors. Optional drivers are imported only here."""
