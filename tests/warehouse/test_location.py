from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.refusals import refused
from tests.warehouse.conftest import GUARDED, at_failpoint, trajectories, trajectory
from warehouse import StorageLost, Warehouse, WarehouseError
from warehouse.commit.failpoints import failpoint_hooks
from warehouse.commit.postgres_ledger import PostgresLedger
from warehouse.location import file_system, parse_location, refuse_network_folder
from warehouse.upkeep.verification import verify

PASSWORD = "it's a s@fe/pass word"


@pytest.mark.parametrize(
    "location, code",
    [
        ("postgresql://u@h/d", "NoPlaceForData"),
        ("postgresql://u@h/d?data=shared", "RelativeFolder"),
        ("/w?dta=x", "UnknownSetting"),
        ("/w?data=gs://b/x", "UnknownStorage"),
        ("postgresql://u@h/d?data=/x&schema=a-b", "InvalidSchema"),
        ("/what?", "NoSetting"),
        ("/what?/warehouse", "NoSetting"),
        ("/a?b=c", "UnknownSetting"),
    ],
)
def test_impossible_locations_are_refused(location: str, code: str) -> None:
    with refused(code):
        parse_location(location)


@pytest.mark.parametrize(
    "location",
    [
        "/a/folder",
        "/a/folder?data=s3://bucket/prefix",
        "/a/folder?data=/other folder",
        "postgresql://user@host:5433/db?data=/x&schema=mine&sslmode=require",
        "postgresql:///db?host=/run/postgresql&data=s3://bucket/x",
    ],
)
def test_a_shown_location_is_read_back_the_same(location: str) -> None:
    parsed = parse_location(location)
    assert parse_location(str(parsed)) == parsed


@pytest.mark.parametrize("location", ["postgresql://u:secret@h/d", "postgresql://h/d?user=u&password=secret"])
def test_no_refusal_of_a_location_shows_its_password(location: str) -> None:
    for wrong in (location, f"{location}{'&' if '?' in location else '?'}data=/x&schema=a-b"):
        with pytest.raises(WarehouseError) as refusal:
            parse_location(wrong)
        assert "secret" not in str(refusal.value)


def test_network_file_systems_are_refused_for_a_sqlite_catalog(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    shared = "".join(f"2 1 0:5 / {name} rw shared:1 - nfs4 server:/x rw\n" for name in ("/shared\\040disk", "/données"))
    mounts.write_text("1 0 8:1 / / rw - ext4 /dev/a rw\n" + shared, encoding="utf-8")
    assert file_system(Path("/shared disk/w"), mounts.read_text(encoding="utf-8")) == "nfs4"
    assert file_system(Path("/données/w"), mounts.read_text(encoding="utf-8")) == "nfs4"
    assert file_system(Path("/home/w"), mounts.read_text()) == "ext4"
    with refused("UnsafeStorage", "nfs4"):
        refuse_network_folder(Path("/shared disk/w"), mounts)
    refuse_network_folder(Path("/home/w"), mounts)


@pytest.fixture
def guarded(postgres: str, tmp_path: Path) -> str:
    """The location of a warehouse in a PostgreSQL that asks for a password."""
    import psycopg

    escaped = PASSWORD.replace("'", "''")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {GUARDED}" if _known(connection) else "SELECT 1")
        connection.execute(f"DROP ROLE IF EXISTS {GUARDED}")
        connection.execute(f"CREATE ROLE {GUARDED} LOGIN SUPERUSER PASSWORD '{escaped}'")
    parts = urlsplit(postgres)
    host = f"{GUARDED}:{quote(PASSWORD, safe='')}@{parts.hostname}:{parts.port}"
    return f"postgresql://{host}/postgres?schema=guarded&data={tmp_path}/data"


def _known(connection: object) -> bool:
    found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (GUARDED,))  # type: ignore[attr-defined]
    return found.fetchone() is not None


@pytest.mark.postgres
def test_a_password_opens_the_warehouse_and_is_shown_nowhere(guarded: str) -> None:
    with Warehouse.open(guarded) as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
        assert store.value("SELECT count(*) FROM trajectories") == 3
        shown = [str(store.location), repr(store.location), str(store.rows("FROM duckdb_databases()"))]
        shown += [str(store.rows("FROM duckdb_secrets()")), str(store.rows("FROM duckdb_settings()"))]
    assert not any(PASSWORD in text or quote(PASSWORD, safe="") in text for text in shown)


@pytest.mark.postgres
def test_another_process_opens_the_shown_location_with_the_credentials_in_its_environment(guarded: str) -> None:
    with Warehouse.open(guarded) as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
        location, credentials = str(store.location), store.location.credentials()
    program = (
        "import sys; from warehouse import Warehouse\n"
        "with Warehouse.open(sys.argv[1]) as store: print(store.value('SELECT count(*) FROM trajectories'))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    command = [sys.executable, "-c", program, location]
    done = subprocess.run(command, env=environment | credentials, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3"
    without = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "StorageLost" in without.stderr


@pytest.mark.postgres
def test_a_wrong_password_is_refused_without_showing_it(guarded: str) -> None:
    wrong = guarded.replace(quote(PASSWORD, safe=""), "wrong-password")
    with refused("StorageLost") as refusal:
        Warehouse.open(wrong)
    assert "wrong-password" not in str(refusal.value)


@pytest.mark.postgres
def test_the_server_notices_within_a_minute_that_a_lock_holder_has_vanished(postgres: str, tmp_path: Path) -> None:
    with Warehouse.open(f"{postgres}?schema=vanished&data={tmp_path}/data") as store:
        ledger = store.ledger
        assert isinstance(ledger, PostgresLedger)
        with ledger.lock("commit", timeout_s=1):
            session = ledger._connect()
            figures = {
                name: int(str(session.execute(f"SHOW tcp_keepalives_{name}").fetchone()[0]))  # type: ignore[index,call-overload]
                for name in ("idle", "interval", "count")
            }
            session.close()
    assert figures["idle"] + figures["interval"] * figures["count"] <= 60


@pytest.mark.postgres
def test_a_database_without_an_encoding_serves_as_any_other(postgres: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    location = f"{postgres.removesuffix('/postgres')}/plain?schema=spo&data={tmp_path}"
    with Warehouse.open(location) as store:
        store.append("b", {"trajectories": [trajectory("t", text="größer")]}, run_id="r")
    with Warehouse.open(location) as store:
        assert store.value("SELECT text FROM trajectories") == "größer"


def end_sessions(address: str, which: str) -> None:
    """Let the server end the sessions that hold a lock (`advisory`) or all others of this database."""
    import psycopg

    of = "pg_locks WHERE locktype = 'advisory' AND granted"
    if which == "all":
        of = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM {of}) AS sessions")
        connection.execute("SELECT pg_sleep(0.2)")


@pytest.mark.postgres
def test_a_lost_connection_neither_keeps_a_lock_nor_is_used_again(postgres: str) -> None:
    schema = f"lost_{uuid.uuid4().hex[:8]}"
    with closing(PostgresLedger(postgres, None, schema, create=True)) as one:
        one.put("name", "kept")
        end_sessions(postgres, "all")
        with pytest.raises(StorageLost), one.lock("commit", timeout_s=1):
            pass
        with closing(PostgresLedger(postgres, None, schema, create=False)) as two:
            with two.lock("commit", timeout_s=1) as held:
                assert held
        assert one.get("name") == "kept"
        with one.lock("commit", timeout_s=1) as held:
            assert held


@pytest.mark.postgres
def test_a_lock_whose_session_was_lost_says_so(postgres: str) -> None:
    schema = f"lost_{uuid.uuid4().hex[:8]}"
    with closing(PostgresLedger(postgres, None, schema, create=True)) as ledger:
        with pytest.raises(StorageLost), ledger.lock("commit", timeout_s=1):
            end_sessions(postgres, "advisory")
        with ledger.lock("commit", timeout_s=1) as held:
            assert held


@pytest.mark.postgres
@pytest.mark.parametrize("label", ["transaction-begun", "ledger-reconciled", "files-registered"])
def test_a_leader_whose_lock_was_lost_commits_nothing_that_another_one_has_committed(
    postgres: str, tmp_path: Path, label: str
) -> None:
    location = f"{postgres}?schema=w{uuid.uuid4().hex[:10]}&data={tmp_path}/data"

    def lose_the_lock() -> None:
        end_sessions(postgres, "advisory")
        Warehouse.open(location).close()  # commits what waits

    with Warehouse.open(location) as store:
        store.append("before", {"trajectories": trajectories(1)}, run_id="run")
        with pytest.raises(StorageLost), at_failpoint(label, lose_the_lock):
            store.append("b", {"trajectories": trajectories(3, "b")}, run_id="run")
        assert store.append("b", {"trajectories": trajectories(3, "b")}, run_id="run") == store.snapshot()
        store.append("after", {"trajectories": trajectories(1, "after")}, run_id="run")
        assert store.value("SELECT count(*) FROM trajectories WHERE batch_id = 'b'") == 3
        assert store.value("SELECT count(*) FROM trajectories") == 5
    assert verify(location).clean


@pytest.mark.postgres
def test_an_append_that_lost_its_ledger_halfway_can_be_repeated(postgres: str, tmp_path: Path) -> None:
    reached: list[str] = []

    def lose_the_ledger(now: str) -> None:
        if now == "transaction-begun" and not reached:
            reached.append(now)
            with closing(ledger._connect()) as session:
                session.execute("SELECT pg_terminate_backend(%s)", (ledger._own.info.backend_pid,))
                session.execute("SELECT pg_sleep(0.2)")

    with Warehouse.open(f"{postgres}?schema=w{uuid.uuid4().hex[:10]}&data={tmp_path}/data") as store:
        ledger = store.ledger
        assert isinstance(ledger, PostgresLedger)
        failpoint_hooks.append(lose_the_ledger)
        try:
            with pytest.raises(StorageLost):
                store.append("b", {"trajectories": trajectories(3)}, run_id="run")
        finally:
            failpoint_hooks.remove(lose_the_ledger)
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
        assert store.value("SELECT count(*) FROM trajectories") == 3
