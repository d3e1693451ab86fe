"""A hub of one checkpoint on this machine: the four requests that the client library makes of it.

It can break off in the middle of a file, send one to another store for large files, and tells what it was
asked for: byte ranges and tokens.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "someone/gepard"


class Hub(ThreadingHTTPServer):
    """Serves the files of ``directory`` as ``NAME`` at ``COMMIT``.

    ``break_at``: where long files end early; ``most``: bytes that one answer has; ``whole``: knows no ranges;
    ``store``: where large files are to be had.
    """

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {path.name: path.read_bytes() for path in directory.iterdir()}
        self.originals = dict(self.files)
        self.hashes = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}
        self.break_at: int | None = None
        self.most: int | None = None
        self.whole = False
        self.store: str | None = None
        self.tokens: set[str | None] = set()
        self.ranges: list[tuple[str, str]] = []
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def _serve(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        if path in (
            f"/api/models/{NAME}",
            f"/api/models/{NAME}/revision/main",
            f"/api/models/{NAME}/revision/{COMMIT}",
        ):
            self._json(200, self._info())
            return
        start = f"/{NAME}/resolve/{COMMIT}/"
        name = path.removeprefix(start)
        if path.startswith(start) and name in self.server.files:
            self._file(name, body=body)
            return
        known = path.startswith((f"/api/models/{NAME}/revision/", f"/{NAME}/"))
        self._json(404, {"error": "no"}, {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})

    def _info(self) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = []
        for name, data in self.server.files.items():
            kept = self.server.originals[name]
            blob = hashlib.sha1(b"blob %d\0" % len(kept) + kept).hexdigest()
            entry: dict[str, Any] = {"rfilename": name, "size": len(kept), "blobId": blob}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"sha256": self.server.hashes[name], "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        return {"id": NAME, "modelId": NAME, "sha": COMMIT, "private": False, "siblings": siblings}

    def _file(self, name: str, *, body: bool) -> None:
        self.server.tokens.add(self.headers.get("Authorization"))
        if self.server.store is not None and name.endswith(".safetensors"):
            self.send_response(302)
            self.send_header("Location", self.server.store + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data, first = self.server.files[name], 0
        wanted = self.headers.get("Range")
        if wanted and not self.server.whole:
            first = int(wanted.removeprefix("bytes=").partition("-")[0])
        if body:
            self.server.asked.append(name)
            if wanted:
                self.server.ranges.append((name, wanted))
        self.send_response(206 if first else 200)
        self.send_header("ETag", f'"{self.server.hashes[name]}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if not body:
            return
        end = len(data)
        if self.server.break_at is not None and len(data) > self.server.break_at:
            end, self.close_connection = self.server.break_at, True
        if self.server.most is not None and len(data) - first > self.server.most:
            end, self.close_connection = first + self.server.most, True
        self.wfile.write(data[first:end])

    def _json(self, status: int, value: Any, more: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in (more or {}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def running(directory: Path) -> Iterator[Hub]:
    """Run a hub."""
    hub = Hub(directory)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
