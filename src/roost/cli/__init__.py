"""The command line `roost`: one command per task; commands of one subject share a file."""

from roost.cli import adopt, console, define, demo, doctor, import_, look, remove, serve
from roost.cli.app import main

__all__ = ["main"]

for command in (
    *(define.create, define.alter, define.ddl),
    *(adopt.cap, adopt.uncap),
    *(look.list_, look.show, look.check, doctor.doctor),
    *(import_.import_, remove.clear, remove.forget, remove.drop),
    *(serve.serve, console.console, demo.demo),
):
    main.add_command(command)
