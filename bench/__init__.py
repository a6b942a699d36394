"""Measurements: always side by side in one run, always ratios. `python -m bench` runs all of them."""
