"""The command line `roost`: one command per task; commands of one subject share a file."""

from roost.cli import adopt, define, demo, import_, look, serve
from roost.cli.app import main

__all__ = ["main"]

for command in (
    *(define.create, define.alter, define.ddl),
    *(adopt.cap, adopt.uncap),
    *(look.list_, look.show, look.check, look.doctor),
    *(import_.import_, look.clear, look.forget, look.drop),
    *(serve.serve, serve.console, demo.demo),
):
    main.add_command(command)
