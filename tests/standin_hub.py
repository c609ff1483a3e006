"""A stand-in for the Hugging Face hub on loopback: the few answers that a snapshot download needs, and ways to go wrong."""

import hashlib
import http.server
import json
import socket
import threading
import unittest

COMMIT = "c0ffee" * 6 + "beef"


def _loopback():
    """Whether this process can reach itself: a network that is off entirely may have no loopback interface up either."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
            return True
    except OSError:
        return False


needs_loopback = unittest.skipUnless(_loopback(), "needs the loopback interface, 127.0.0.1, which is down here")


class StandInHub:
    """Serves {repo: {path: bytes}} until it is closed; `requested` lists the paths of files that were asked for.

    fault: None, "gated", "interrupted" (weights stop half way), "corrupt" and
    "corrupt second" (one byte of the weights, or of the second shard, is another), "broken" (500).
    """

    def __init__(self, repos, fault=None):
        self.repos, self.fault, self.requested, self.revisions = repos, fault, [], []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_HEAD(self):
                hub.answer(self, body=False)

            def do_GET(self):
                hub.answer(self, body=True)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request, body):
        parts = request.path.partition("?")[0].strip("/").split("/")
        if self.fault == "broken":
            return _send(request, 500, b"{}", body)
        if parts[:2] == ["api", "models"]:
            return self._api(request, parts[2:], body)
        repo, files = "/".join(parts[:2]), self.repos.get("/".join(parts[:2]))
        path = "/".join(parts[4:])
        if files is None or path not in files:
            return _send(request, 404, b"{}", body, {"X-Error-Code": "RepoNotFound" if files is None else "EntryNotFound"})
        if self.fault == "gated":
            return _send(request, 403, b"{}", body, {"X-Error-Code": "GatedRepo"})
        if body:
            self.requested.append(f"{repo}/{path}")
        data = files[path]
        is_weights = path.endswith(".safetensors")
        etag = hashlib.sha256(data).hexdigest() if is_weights else hashlib.sha1(data).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{etag}"'}
        if is_weights and body and (self.fault == "corrupt" or (self.fault == "corrupt second" and "-00002-" in path)):
            data = data[:-1] + bytes([data[-1] ^ 1])
        if is_weights and body and self.fault == "interrupted":
            request.send_response(200)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(data[: len(data) // 2])
            request.wfile.flush()
            request.close_connection = True
            request.connection.shutdown(2)
            return None
        return _send(request, 200, data, body, headers)

    def _api(self, request, parts, body):
        repo, files = "/".join(parts[:2]), self.repos.get("/".join(parts[:2]))
        if files is None:
            return _send(request, 404, b"{}", body, {"X-Error-Code": "RepoNotFound"})
        if self.fault == "gated":
            return _send(request, 403, b"{}", body, {"X-Error-Code": "GatedRepo"})
        if len(parts) > 3 and parts[2] in ("revision", "tree"):
            self.revisions.append(parts[3])
            if parts[3] not in ("main", COMMIT, "v1"):
                return _send(request, 404, b"{}", body, {"X-Error-Code": "RevisionNotFound"})
        if len(parts) > 2 and parts[2] == "tree":
            return _send(request, 200, json.dumps([_entry(p, d) for p, d in files.items()]).encode(), body)
        siblings = [{"rfilename": p} for p in files]
        info = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False, "downloads": 0}
        return _send(request, 200, json.dumps(info).encode(), body)


def _entry(path, data):
    entry = {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
    if path.endswith(".safetensors"):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


def _send(request, status, data, body, headers=None):
    request.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    if body:
        request.wfile.write(data)
