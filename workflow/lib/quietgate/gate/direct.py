"""HTTP that goes straight to the server under measurement."""

from __future__ import annotations

import requests


def session() -> requests.Session:
    """A session without proxy and netrc of the user's shell: neither may answer for the server."""
    http = requests.Session()
    http.trust_env = False
    return http
