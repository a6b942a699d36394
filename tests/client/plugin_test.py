"""The MariaDB with HandlerSocket that other tests use is what they take it for."""

from __future__ import annotations

import socket

from tests.servers import Plugin


def ask(port: int, *lines: bytes) -> list[bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=180) as connection, connection.makefile("rb") as answers:
        connection.sendall(b"".join(line + b"\n" for line in lines))
        return [next(answers).rstrip(b"\n") for _ in lines]


def test_each_port_has_its_secret_and_sql_sees_the_rows(handlersocket_plugin: Plugin) -> None:
    plugin = handlersocket_plugin
    plugin.sql("CREATE DATABASE its_test")
    plugin.sql("CREATE TABLE its_test.t (id INT PRIMARY KEY, v VARCHAR(64)) ENGINE=InnoDB")
    opened = b"P\t1\tits_test\tt\tPRIMARY\tid,v"
    write = [f"A\t1\t{plugin.write_secret}".encode(), opened, b"1\t+\t2\t7\tseven"]
    assert ask(plugin.write_port, *write) == [b"0\t1"] * 3
    assert plugin.sql("SELECT id, v FROM its_test.t") == [(7, "seven")]
    read = [f"A\t1\t{plugin.read_secret}".encode(), opened, b"1\t=\t1\t7", b"1\t+\t2\t8\teight"]
    assert ask(plugin.read_port, *read) == [b"0\t1", b"0\t1", b"0\t2\t7\tseven", b"2\t1\treadonly"]
    assert ask(plugin.read_port, write[0], opened) == [b"3\t1\tunauth"] * 2
    plugin.sql("DROP DATABASE its_test")
