"""What the environment variables `SPO_*` mean, and which of their values are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import settings


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No variable is set; the folder that commands are given in."""
    for name in ("SPO_HOME", "SPO_WAREHOUSE", "SPO_PORT", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lake", "{here}/lake"),
        ("lake?data=s3://bucket/prefix", "{here}/lake?data=s3://bucket/prefix/"),
        ("lake?data=rows", "{here}/lake?data={here}/rows/"),
        ("postgresql://me:secret@host/base?data=/rows", "postgresql://me:secret@host/base?data=/rows"),
        ("", "{here}/.spo/warehouse"),
    ],
)
def test_a_relative_warehouse_starts_where_the_command_is_given(
    given: str, meant: str, nothing_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_WAREHOUSE", given)
    assert settings.warehouse_location() == meant.format(here=nothing_set)
    assert "secret" not in settings.warehouse_shown()


def test_variables_that_are_empty_leave_the_defaults(nothing_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPO_HOME", "SPO_PORT"):
        monkeypatch.setenv(name, "")
    assert settings.home() == nothing_set / ".spo"
    assert settings.port() == settings.DEFAULT_PORT


@pytest.mark.parametrize("given", ["abc", "99999", "0", "-1", "42.0"])
def test_what_is_no_port_is_refused_by_name(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPO_PORT", given)
    with pytest.raises(settings.BadSetting, match=f"SPO_PORT is '{given}'"):
        settings.port()
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:x{given}/api")
    with pytest.raises(settings.BadSetting, match="PREFECT_API_URL is "):
        settings.port()


@pytest.mark.parametrize(
    "given", ["foo", "localhost/api", "127.0.0.1:4300/api", "http://", "http://127.0.0.1:99999/api"]
)
def test_what_is_no_address_is_refused_and_not_taken_for_another_machine(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", given)
    for asked in (settings.port, settings.server_elsewhere):
        with pytest.raises(settings.BadSetting, match="PREFECT_API_URL is "):
            asked()
