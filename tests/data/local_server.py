"""A server of files on this machine that breaks connections and answers wrongly as it is told."""

import hashlib
import http.server

CONTENT = bytes(range(256)) * 2000  # larger than what a socket takes at once


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; each request first takes the next item of `faults`, if there is one."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.ranges: list[str | None] = []
        self.etags = True

    def url(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server: Server = self.server
        server.ranges.append(self.headers.get("Range"))
        fault = server.faults.pop(0) if server.faults else ""
        if fault.isdigit():
            return self.send_error(int(fault))
        if self.path[1:] not in server.files:
            return self.send_error(404)
        data = server.files[self.path[1:]]
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        start = 0
        wanted = self.headers.get("Range")
        if wanted and fault != "no range" and self.headers.get("If-Range", tag) == tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.end_headers()
                return None
            self.send_response(206)
            start = 0 if fault == "wrong range" else start
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        if server.etags:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if fault == "break":
            body = body[: len(body) // 3]
        if fault == "nothing":
            body = b""
        self.wfile.write(body)
        return None

    def log_message(self, *_):
        pass


def names(folder):
    return sorted(path.name for path in folder.iterdir())
