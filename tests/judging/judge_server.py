"""A real HTTP server that speaks the chat completions protocol, with whatever a test wants it to say."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USED = (100, 20)  # tokens read and written, as every reply tells


def said(text: str | None, usage: tuple[int, int] | None = USED) -> tuple[int, str]:
    """A reply of status 200."""
    body: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return 200, json.dumps(body)


# From the prompt and how often it has been asked before to status and body, and headers if any.
Respond = Callable[[str, int], tuple]


class JudgeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, respond: Respond) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.delay = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.authorizations: set[str | None] = set()
        self.times: list[float] = []
        self.asked: Counter[str] = Counter()
        self.busy = self.busiest = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def do_POST(self) -> None:
        server, body = self.server, json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["messages"][-1]["content"]
        with server.lock:
            times = server.asked[prompt]
            server.asked[prompt] += 1
            server.bodies.append(body)
            server.authorizations.add(self.headers["authorization"])
            server.times.append(time.monotonic())
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
        try:
            time.sleep(server.delay)
            status, text, *headers = server.respond(prompt, times) if self.path == "/v1/chat/completions" else (404, "")
        finally:
            with server.lock:
                server.busy -= 1
        content = text if isinstance(text, bytes) else text.encode()
        try:
            self.send_response(status)
            for name, value in headers[0].items() if headers else ():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client went away after its time-out

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(respond: Respond) -> Iterator[JudgeServer]:
    server = JudgeServer(respond)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def endpoint(to: str, **changes: Any) -> dict[str, Any]:
    """Settings of a judge there."""
    return {
        "kind": "endpoint", "url": to, "model": "judge-1", "request": {"temperature": 0.0, "max_tokens": 256},
        "concurrency": 4, "timeout_s": 10.0, "attempts": 3, "backoff_s": 0.01,
        "price": {"prompt": 2.0, "completion": 10.0}, **changes,
    }  # fmt: skip
