"""Dagster's SQLite files in tests: written as ever, without waiting for the disk; only a loss of power would tell.

A run makes hundreds of commits; where other tests write too, each waits longer than it takes to compute. Processes that
a test starts, and what writes with SQLite itself (caches, ledgers), sync as users' do.
"""

import sqlite3

from sqlalchemy import event
from sqlalchemy.engine import Engine


@event.listens_for(Engine, "connect")
def _without_sync(connection: object, _: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
