"""A fake gateway: the admin API's upload protocol and registry, over real sockets, in memory.

It keeps every byte that arrives, as the real one does. `faults` are what goes wrong, in order; each
happens once, at the first request that it is for.
"""

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from serve.core.versions import File, content_digest


@dataclass(slots=True)
class Fault:
    """What goes wrong with one request of a method (and path, which its path has to contain).

    `status` is answered instead; or the connection is dropped after `drop_after` bytes of the body,
    or after all of it, which is taken in (`is_silent`). `held`: wait for this after the bytes.
    `spoil`: a byte arrives wrong.
    """

    method: str
    path: str = ""
    status: int = 0
    code: str = "error"
    drop_after: int | None = None
    is_silent: bool = False
    spoil: bool = False
    held: threading.Event | None = None
    reached: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Registered:
    """One version: its record, and what changes in it with each look."""

    record: dict[str, Any]
    looks: list[dict[str, Any]] = field(default_factory=list)


class FakeGateway:
    """What the gateway has, and what it was asked."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.staged: dict[str, bytearray] = {}
        self.uploads: dict[str, dict[str, Any]] = {}
        self.versions: dict[int, Registered] = {}
        self.faults: list[Fault] = []
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self.commits: list[dict[str, Any]] = []
        self.received = 0
        self.looks: list[dict[str, Any]] = []  # of the next version
        self.model: dict[str, Any] = {"split": {}, "labels": {}}
        self.replicas = [replica("a"), replica("b")]
        self.changes: list[tuple[str, str, Any]] = []
        self.answers: dict[str, Any] = {}  # to changes, by path
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["FakeGateway"]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        gateway = self

        class Handler(_Handler):
            fake = gateway

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.001}, daemon=True
        ).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None

    def fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.method == method and fault.path in path:
                    self.faults.remove(fault)
                    return fault
        return None

    # --- what it does ------------------------------------------------------------------------

    def begin(self, body: dict[str, Any]) -> dict[str, Any]:
        identity = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
        self.uploads[identity] = body
        files = [File(**file) for file in body["files"]]
        content = content_digest(files)
        missing = {
            file.sha256: {
                "sha256": file.sha256,
                "size": file.size,
                "offset": len(self.staged.get(file.sha256, b"")),
            }
            for file in files
            if file.sha256 not in self.blobs
        }
        return {
            "id": identity,
            "model": body["model"],
            "content": content,
            "missing": list(missing.values()),
            "existing": self.existing(content),
        }

    def existing(self, content: str) -> int | None:
        same = [n for n, v in self.versions.items() if v.record["content"] == content]
        return same[-1] if same else None

    def size(self, identity: str, sha256: str) -> int:
        return next(f["size"] for f in self.uploads[identity]["files"] if f["sha256"] == sha256)

    def append(self, staged: bytearray, here: int, data: bytes) -> bool:
        with self._lock:
            if len(staged) != here:
                return False
            staged += data
            self.received += len(data)
            return True

    def store(self, sha256: str, size: int) -> bool:
        """Whether nothing is wrong with a blob that may be whole."""
        with self._lock:
            if sha256 in self.blobs or len(self.staged.get(sha256, b"")) < size:
                return True
            data = bytes(self.staged.pop(sha256, b""))
            if hashlib.sha256(data).hexdigest() != sha256:
                return False
            self.blobs[sha256] = data
            return True

    def offset(self, sha256: str) -> int:
        if sha256 in self.blobs:
            return len(self.blobs[sha256])
        return len(self.staged.get(sha256, b""))

    def commit(self, identity: str, ask: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        upload = self.uploads[identity]
        self.commits.append(ask)
        if any(file["sha256"] not in self.blobs for file in upload["files"]):
            return 409, error("conflict", "blobs are not there yet")
        files = [File(**file) for file in upload["files"]]
        content = content_digest(files)
        known = None if ask["again"] else self.existing(content)
        number = known or len(self.versions) + 1
        if known is None:
            self.add(number, upload["model"], files, self.looks)
        page = {"model": upload["model"], "version": number, "state": "uploaded"}
        return 202, page | {"created": known is None}

    def add(
        self, number: int, model: str, files: list[File], looks: list[dict[str, Any]] | None = None
    ) -> None:
        record = {
            "model": model,
            "version": number,
            "state": "ready",
            "recorded": "published",
            "replicas": ["a", "b"],
            "named_by": [],
            "provenance": {"author": "alice", "at": 1.0, "source": "onnx m.onnx", "git_commit": ""},
            "content": content_digest(files),
            "reason": "",
            "findings": [],
            "labels": [],
            "live": False,
            "times": {"uploaded": 1.0, "checked": 2.0, "published": 3.0},
            "files": [file.to_json() for file in files],
            "config": "",
        }
        self.versions[number] = Registered(record, list(looks or ()))

    def look(self, number: int) -> dict[str, Any]:
        registered = self.versions[number]
        if registered.looks:
            registered.record.update(registered.looks.pop(0))
        return registered.record

    def show(self, name: str) -> dict[str, Any]:
        versions = [
            {
                "version": number,
                "state": each.record["state"],
                "replicas": each.record["replicas"],
                "labels": [],
                "reason": each.record["reason"],
            }
            for number, each in self.versions.items()
        ]
        return {"name": name, "pool": "default", "versions": versions, **self.model}


def replica(name: str, *, state: str = "up", pool: str = "default") -> dict[str, str]:
    return {"name": name, "state": state, "pool": pool}


def error(code: str, what: str = "it broke") -> dict[str, str]:
    return {"what": what, "why": "a reason", "try_this": "that", "code": code}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeGateway

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def do_POST(self) -> None:
        fault, body = self._begin()
        parts = self._parts()
        if body is None or self._went_wrong(fault):
            return
        if parts == ["uploads"]:
            page = self.fake.begin(body)
            self._lose(fault) or self._say(200, page)
        elif parts[0] != "uploads":
            self._change(body)
        elif parts[1] not in self.fake.uploads:
            self._say(404, error("unknown_upload"))
        else:
            status, page = self.fake.commit(parts[1], body)
            self._lose(fault) or self._say(status, page)

    def do_PATCH(self) -> None:
        fake, parts = self.fake, self._parts()
        fake.asked.append((self.command, self.path))
        fault = fake.fault(self.command, self.path)
        if parts[1] not in fake.uploads:
            self._body()
            self._say(404, error("unknown_upload"))
            return
        if self._went_wrong(fault, after=True):
            return
        sha256, offset = parts[3], int(self.headers["upload-offset"])
        here, size = fake.offset(sha256), fake.size(parts[1], sha256)
        if offset != here:
            self._body()
            self._say(409, error("wrong_offset"), {"upload-offset": str(here)})
        elif self._take(sha256, fault) and not self._lose(fault):
            self._finish(sha256, size)

    def do_HEAD(self) -> None:
        fault, _ = self._begin()
        if not self._went_wrong(fault):
            parts = self._parts()
            if parts[1] not in self.fake.uploads:
                self._say(404, {})
                return
            length = str(self.fake.size(parts[1], parts[3]))
            headers = {"upload-offset": str(self.fake.offset(parts[3])), "upload-length": length}
            self._say(200, {}, headers)

    def do_GET(self) -> None:
        fault, _ = self._begin()
        if self._went_wrong(fault):
            return
        match self._parts():
            case ["replicas"]:
                self._say(200, self.fake.replicas)
            case ["models", name] if self.fake.versions:
                self._say(200, self.fake.show(name))
            case ["models", _, "versions", number] if int(number) in self.fake.versions:
                self._say(200, self.fake.look(int(number)))
            case ["models", _, "versions", number, "files", *path]:
                self._file(int(number), "/".join(path))
            case _:
                self._say(404, error("unknown_model"))

    def do_DELETE(self) -> None:
        fault, _ = self._begin()
        if not self._went_wrong(fault):
            self._change(None)

    # --- its parts -----------------------------------------------------------------------------

    def _begin(self) -> tuple[Fault | None, Any]:
        self.fake.asked.append((self.command, self.path))
        self.fake.headers = {name.lower(): text for name, text in self.headers.items()}
        body = self._body()
        return self.fake.fault(self.command, self.path), json.loads(body) if body else {}

    def _parts(self) -> list[str]:
        return urlsplit(self.path).path.strip("/").split("/")[1:]

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _went_wrong(self, fault: Fault | None, *, after: bool = False) -> bool:
        if fault is None or not fault.status:
            return False
        if after:
            self._body()
        fault.reached.set()
        self._say(fault.status, error(fault.code))
        return True

    def _take(self, sha256: str, fault: Fault | None) -> bool:
        """Keep the body as it arrives; whether all of it did."""
        left = int(self.headers["content-length"])
        most = left if fault is None or fault.drop_after is None else fault.drop_after
        staged = self.fake.staged.setdefault(sha256, bytearray())
        here = int(self.headers["upload-offset"])
        while min(left, most) > 0:
            data = self.rfile.read1(min(left, most, 1 << 16))
            if not data:
                self.close_connection = True
                return False
            if not self.fake.append(staged, here, data):  # another client was faster
                self.close_connection = True
                self._say(409, error("wrong_offset"), {"upload-offset": str(len(staged))})
                return False
            left, most, here = left - len(data), most - len(data), here + len(data)
        if fault is not None and fault.drop_after is not None:
            fault.reached.set()
            if fault.held is not None:
                fault.held.wait(30)
            self._drop()
            return False
        if fault is not None and fault.spoil:
            staged[0] ^= 1
        return True

    def _finish(self, sha256: str, size: int) -> None:
        if not self.fake.store(sha256, size):
            self._say(422, error("digest_mismatch"))
            return
        self._say(204, None, {"upload-offset": str(self.fake.offset(sha256))})

    def _lose(self, fault: Fault | None) -> bool:
        if fault is None or not fault.is_silent:
            return False
        fault.reached.set()
        self._drop()
        return True

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _change(self, body: Any) -> None:
        self.fake.changes.append((self.command, self.path, body))
        self._say(200, self.fake.answers.get(self.path, {}))

    def _file(self, number: int, path: str) -> None:
        files = self.fake.versions[number].record["files"]
        found = next((file for file in files if file["path"] == path), None)
        if found is None:
            self._say(404, error("not_found"))
            return
        data = self.fake.blobs[found["sha256"]]
        self._say(200, data, {"content-type": "application/octet-stream"})

    def _say(self, status: int, page: Any, headers: dict[str, str] | None = None) -> None:
        data = page if isinstance(page, bytes) else json.dumps(page).encode()
        data = b"" if status == 204 or self.command == "HEAD" else data
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        if status != 204:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        """Say nothing."""
