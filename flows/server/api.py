"""The server's HTTP interface, for what Prefect's own client has no method for or would need its settings for."""

from __future__ import annotations

import httpx


def server_client(api: str) -> httpx.Client:
    """A client of the server at that address, which asks again while the server's database is busy (status 503)."""
    from prefect.client.base import PrefectHttpxSyncClient

    return PrefectHttpxSyncClient(base_url=api, timeout=60, raise_on_all_errors=False)
