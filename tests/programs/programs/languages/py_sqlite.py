"""sqlite3 with a connection per thread on one file: transactions, locking between them, and the
busy timeout."""

import os
import sqlite3
import threading

from case import check, verdict

FILE = "threads.db"
setup = sqlite3.connect(FILE)
setup.execute("PRAGMA synchronous = OFF")
setup.execute("CREATE TABLE entries (thread INTEGER, turn INTEGER, text TEXT)")
setup.execute("CREATE TABLE counter (value INTEGER)")
setup.execute("INSERT INTO counter VALUES (0)")
setup.commit()
errors = []


def body(number):
    try:
        connection = sqlite3.connect(FILE, timeout=600, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        for turn in range(10):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO entries VALUES (?, ?, ?)",
                                   [(number, turn, f"text {i}") for i in range(20)])
            (value,) = connection.execute("SELECT value FROM counter").fetchone()
            connection.execute("UPDATE counter SET value = ?", (value + 1,))
            connection.execute("COMMIT")
            connection.execute("SELECT count(*) FROM entries").fetchone()
        connection.close()
    except sqlite3.Error as error:
        errors.append(error)


threads = [threading.Thread(target=body, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
(count,) = setup.execute("SELECT count(*) FROM entries").fetchone()
(value,) = setup.execute("SELECT value FROM counter").fetchone()
check("no_errors", not errors, errors)
check("rows", count == 1600, count)
check("counter", value == 80, value)
(sound,) = setup.execute("PRAGMA integrity_check").fetchone()
check("integrity", sound == "ok", sound)
setup.close()
os.unlink(FILE)
verdict()
