# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A web server on loopback: plain files, modules of TF-Hub, and the part of Hugging Face we use."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_REVISIONS = ("main", "v2", COMMIT)


class WebServer(http.server.ThreadingHTTPServer):
    """The server, with what it serves and what was asked of it.

    Attributes:
      files: content by path, "/model.tar.gz"; the query of a request is ignored.
      models: the files of each model on Hugging Face: {"owner/name": {"config.json": b"…"}}.
      errors: status codes of the next answers; each is used once.
      retry_after: the header of this name in these answers, if it is not empty.
      raw: whole answers by path, headers included, which may be malformed.
      pause: seconds before each byte of a whole answer.
      cut: number of bytes after which the next answers with content end; each is used once.
      requests: method and path, in order.
      tokens: the headers Authorization.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.models: dict[str, dict[str, bytes]] = {}
        self.errors: list[int] = []
        self.cut: list[int] = []
        self.retry_after = ""
        self.raw: dict[str, bytes] = {}
        self.pause = 0.0
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()

    def handle_error(self, *_: object) -> None:
        """Keeps clients that end a connection early out of the tests' output."""

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"http://127.0.0.1:{self.server_port}"

    def paths(self, method: str = "GET") -> list[str]:
        """Returns the paths of all requests with this method."""
        return [path for name, path in self.requests if name == method]


@contextlib.contextmanager
def serving() -> Iterator[WebServer]:
    """Runs a server in a thread."""
    with WebServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: WebServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Keeps the tests' output clean."""

    def do_HEAD(self) -> None:
        self._get()

    def do_GET(self) -> None:
        self._get()

    def do_POST(self) -> None:
        """Takes an upload: creates a model, says how to send its files, and keeps them."""
        action = self._note().split("/")
        lines = self.rfile.read(int(self.headers["Content-Length"])).splitlines()
        first, *files = [json.loads(line) for line in lines]
        if action[2] == "repos":
            self._answer_json({"url": f"{self.server.url}/{first['organization']}/{first['name']}"})
        elif action[2] == "validate-yaml":  # Of the model card.
            self._answer_json({})
        elif action[5] == "preupload":
            how = {"uploadMode": "regular", "shouldIgnore": False}
            self._answer_json({"files": [{"path": x["path"], **how} for x in first["files"]]})
        else:
            self.server.models[model := "/".join(action[3:5])] = {
                x["value"]["path"]: base64.b64decode(x["value"]["content"]) for x in files
            }
            self._answer_json(
                {"commitUrl": f"{self.server.url}/{model}/commit/1", "commitOid": COMMIT}
            )

    def _note(self) -> str:
        self.server.requests.append((self.command, self.path))
        self.server.tokens.add(self.headers.get("Authorization"))
        return self.path.partition("?")[0]

    def _get(self) -> None:
        path = self._note()
        if self.server.errors:
            after = self.server.retry_after
            self._answer(self.server.errors.pop(0), b"", {"Retry-After": after} if after else {})
            return
        if path in self.server.raw:
            self.close_connection = True
            for byte in self.server.raw[path] if self.server.pause else ():
                time.sleep(self.server.pause)
                self.wfile.write(bytes([byte]))
            self.wfile.write(b"" if self.server.pause else self.server.raw[path])
            return
        if path in self.server.files:
            self._send_file(self.server.files[path], {})
            return
        if path.startswith("/api/models/"):
            self._list(*path[len("/api/models/") :].split("/")[:4])
            return
        model, separator, rest = path[1:].partition("/resolve/")
        revision, _, name = rest.partition("/")
        if not separator:
            self._answer(404, b"")
        elif model not in self.server.models:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in _REVISIONS:
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif name not in self.server.models[model]:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            self._send_file(self.server.models[model][name], {"X-Repo-Commit": COMMIT})

    def _list(self, owner: str, name: str, action: str, revision: str) -> None:
        """Answers what a revision is, or which files it has."""
        model = f"{owner}/{name}"
        if model not in self.server.models:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in _REVISIONS:
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif action == "tree":
            files = self.server.models[model].items()
            self._answer_json(
                [
                    {"type": "file", "path": path, "size": len(data), "oid": ""}
                    for path, data in files
                ]
            )
        else:
            siblings = [{"rfilename": path} for path in self.server.models[model]]
            self._answer_json({"id": model, "sha": COMMIT, "siblings": siblings})

    def _send_file(self, data: bytes, headers: dict[str, str]) -> None:
        tag = f'"{hashlib.sha256(data).hexdigest()}"'
        headers = {**headers, "ETag": tag}
        self._answer(200, data, headers)

    def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if data and self.server.cut and status < 300 and self.command == "GET":
            data = data[: self.server.cut.pop(0)]
            self.close_connection = True
        self.wfile.write(data)

    def _answer_json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})
