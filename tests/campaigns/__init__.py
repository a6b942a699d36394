"""Long forms of the tests in tests/faults, run by hand: `python -m tests.campaigns.kill --rounds 1000`.

README.md has all. Each ends with one line that says what was done and what was found, and with exit code 1 when
something was broken.
"""
