"""Run the command line `roost` by `python -m roost.cli`."""

from roost.cli import main

if __name__ == "__main__":
    main(prog_name="roost")
