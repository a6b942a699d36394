"""`python -m roost`: the command line, where its script is not on the path."""

from roost.cli import main

main()
