"""The server's HTTP interface, for the commands that start it: Prefect's client would fix its settings before that."""

from __future__ import annotations

import time

import httpx

BUSY = 503
"""Status of an answer while the server's database is locked."""
PAUSES_S = (0.5, 1, 2, 4, 8, 16)


class _Patient(httpx.HTTPTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for pause in PAUSES_S:
            response = super().handle_request(request)
            if response.status_code != BUSY:
                return response
            response.close()
            time.sleep(pause)
        return super().handle_request(request)


def server_client(api: str) -> httpx.Client:
    """A client of the server at that address, which asks again while the server's database is busy."""
    return httpx.Client(base_url=api, timeout=60, transport=_Patient())
