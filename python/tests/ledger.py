"""A ledger in the database that also holds the records, written by each of three drivers in its own transactions."""

import os

import django
import psycopg
import sqlalchemy
from django.conf import settings

URL = os.environ["DATABASE_URL"]
PARTS = sqlalchemy.make_url(URL)

if not settings.configured:
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": PARTS.host,
        "PORT": PARTS.port,
        "USER": PARTS.username,
        "NAME": PARTS.database,
    }
    settings.configure(
        ROOT_URLCONF="test_transactions",
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="of-the-tests",
        DATABASES={"default": database},
    )
    django.setup()

from django.db import connection as django_connection  # noqa: E402
from django.db import transaction as django_transaction  # noqa: E402

alchemy = sqlalchemy.create_engine(PARTS.set(drivername="postgresql+psycopg"))
CREATE = "CREATE TABLE IF NOT EXISTS ledger (item TEXT, run TEXT)"


def rows(item):
    """Who has written this item."""
    with psycopg.connect(URL) as connection:
        connection.execute(CREATE)
        found = connection.execute("SELECT run FROM ledger WHERE item = %s", (item,)).fetchall()
    return [run for (run,) in found]


def nothing():
    """What happens between the last statement and the commit, usually."""


def by_psycopg(item, run, complete, then=nothing):
    with psycopg.connect(URL) as connection:
        connection.execute("INSERT INTO ledger VALUES (%s, %s)", (item, run))
        connection.execute("SELECT onlyonce_complete(%s, %s, %s, %s)", complete)
        then()


def by_sqlalchemy(item, run, complete, then=nothing):
    names = ("lease", "status", "headers", "body")
    with alchemy.begin() as connection:
        connection.execute(sqlalchemy.text("INSERT INTO ledger VALUES (:item, :run)"), {"item": item, "run": run})
        call = "SELECT onlyonce_complete(:lease, :status, CAST(:headers AS jsonb), :body)"
        connection.execute(sqlalchemy.text(call), dict(zip(names, complete)))
        then()


def by_django(item, run, complete, then=nothing):
    with django_transaction.atomic(), django_connection.cursor() as cursor:
        cursor.execute("INSERT INTO ledger VALUES (%s, %s)", (item, run))
        cursor.execute("SELECT onlyonce_complete(%s, %s, %s::jsonb, %s)", complete)
        then()


WRITERS = {"psycopg": by_psycopg, "sqlalchemy": by_sqlalchemy, "django": by_django}


def sqlstate(error):
    """What the database said, whichever driver said it on."""
    while error is not None:
        if getattr(error, "sqlstate", None):
            return error.sqlstate
        error = error.__cause__
    return None
