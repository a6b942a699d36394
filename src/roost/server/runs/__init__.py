"""Runs: requests of one shape through one index, from all connections of a turn, done together.

Requests have the same shape if they differ in their values alone. A shape is compiled once per opened index; its
requests are then handled column by column, as lists of tokens. What a run cannot do as the plain way would (an escape,
a NULL in a key, a value that its column does not take, an error), it hands to the plain way, request by request.
"""

from roost.server.runs.run import NULL, Columns, Plainly, Run
from roost.server.runs.shapes import run_for

__all__ = ["NULL", "Columns", "Plainly", "Run", "run_for"]
