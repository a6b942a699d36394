"""Servers whose settings are not the defaults: everything works just the same, or is refused and the setting named."""
