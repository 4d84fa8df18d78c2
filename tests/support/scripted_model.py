"""A scripted model behind a real socket: speaks Anthropic's Messages and OpenAI's chat completions.

A script is a function from what is asked to a reply; what it is asked is kept in ``log``. Run as a program it serves a
planner that always applies, slowly, and writes every answer that was delivered to a file.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FENCE = re.compile(r"<data>(.*?)</data>", re.DOTALL)


@dataclass
class Reply:
    """What the server answers, in the words of neither protocol."""

    text: str = ""
    tool: Any = None
    finish: str = "stop"  # stop, length, refusal, content_filter
    usage: bool = True
    cached: int = 0
    model: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    wait: float = 0.0
    hang_up: bool = False
    cut: bool = False  # the connection ends in the middle of the body
    drip: float = 0.0  # seconds between the bytes of the body


@dataclass
class Asked:
    """One sending, as the server got it."""

    number: int
    path: str
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def messages(self) -> list[dict[str, str]]:
        system = self.body.get("system")
        first = [{"role": "system", "content": system}] if system else []
        return first + self.body["messages"]


Script = Callable[[Asked], Reply]

INPUT, OUTPUT = 100, 10
"""Tokens that every answer reports, those from the cache among the first."""


class Scripted:
    """The server; ``url`` for Anthropic's SDK, ``openai_url`` for OpenAI's."""

    def __init__(self, script: Script, port: int = 0, record: Path | None = None) -> None:
        self.log: list[Asked] = []
        self.script = script
        lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65_536  # head and body in one packet: two would wait 40 ms for each other

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    asked = Asked(len(owner.log), self.path, body, dict(self.headers))
                    owner.log.append(asked)
                reply = owner.script(asked)
                time.sleep(reply.wait)
                if reply.hang_up:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                out = reply.raw if reply.raw is not None else encoded(reply, asked)
                try:
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(out)))
                    self.end_headers()
                    owner.deliver(self, reply, out)
                except (BrokenPipeError, ConnectionResetError):
                    return
                if record is not None:
                    with lock, record.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(body, sort_keys=True) + "\n")

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.openai_url = f"{self.url}/v1"

    @staticmethod
    def deliver(handler: BaseHTTPRequestHandler, reply: Reply, out: bytes) -> None:
        if reply.cut:
            handler.wfile.write(out[: len(out) // 2])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
        elif reply.drip:
            for at in range(len(out)):
                handler.wfile.write(out[at : at + 1])
                handler.wfile.flush()
                time.sleep(reply.drip)
        else:
            handler.wfile.write(out)

    def base_url(self, provider: str) -> str:
        return self.openai_url if provider == "openai" else self.url


@contextmanager
def serving(script: Script) -> Iterator[Scripted]:
    scripted = Scripted(script)
    thread = threading.Thread(target=scripted.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield scripted
    finally:
        scripted.server.shutdown()
        scripted.server.server_close()
        thread.join()


def encoded(reply: Reply, asked: Asked) -> bytes:
    if reply.status != 200:
        return json.dumps({"error": {"type": "an_error", "message": reply.text}}).encode()
    model = asked.body["model"] if reply.model is None else reply.model
    build = anthropic if asked.path.endswith("/messages") else openai
    return json.dumps(build(reply, model)).encode()


def anthropic(reply: Reply, model: str) -> dict[str, Any]:
    content = [{"type": "text", "text": reply.text}]
    if reply.tool is not None:
        content = [{"type": "tool_use", "id": "t1", "name": "send_request", "input": reply.tool}]
    stop = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}.get(reply.finish, reply.finish)
    body = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content, "stop_reason": stop,
    }  # fmt: skip
    if reply.usage:
        body["usage"] = {
            "input_tokens": INPUT - reply.cached, "cache_read_input_tokens": reply.cached, "output_tokens": OUTPUT,
        }  # fmt: skip
    return body


def openai(reply: Reply, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool is not None:
        arguments = reply.tool if isinstance(reply.tool, str) else json.dumps(reply.tool)
        message["content"] = None
        message["tool_calls"] = [
            {"id": "t1", "type": "function", "function": {"name": "send_request", "arguments": arguments}}
        ]
    finish = reply.finish
    if finish == "refusal":
        message |= {"content": None, "refusal": reply.text}
        finish = "stop"
    body = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }  # fmt: skip
    if reply.usage:
        body["usage"] = {
            "prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
            "prompt_tokens_details": {"cached_tokens": reply.cached},
        }  # fmt: skip
    return body


# Planners that can be told from their prompts ------------------------------------------------------------------------


def told(content: str) -> list[Any]:
    return [json.loads(each) for each in FENCE.findall(content)]


def task_of(asked: Asked) -> dict[str, Any]:
    """The task, as amended as the last message that holds one shows it."""
    (first, *_) = told(asked.messages[3]["content"])
    return dict(first)


def amended(asked: Asked) -> bool:
    return "Amended from memory" in asked.messages[3]["content"]


SPOILT = {"payment_method_token": "acme_pm_visa_debit"}
"""Values that break a policy where any odd one would not."""


def without_memory(asked: Asked) -> dict[str, Any]:
    """The task with what memory amended spoilt again."""
    fields = task_of(asked)
    for name in told(asked.messages[3]["content"])[-1] if amended(asked) else ():
        fields[name] = SPOILT.get(name, "spoilt")
    return fields


def suggested(asked: Asked) -> dict[str, Any]:
    """The parameters that the server's last answer suggests."""
    merged: dict[str, Any] = {}
    for message in asked.messages[4:]:
        if message["role"] == "user" and message["content"].startswith("The server answered"):
            (body,) = told(message["content"])
            for each in body.get("recovery_feedback", {}).get("suggestions", []):
                merged |= each["parameters"]
    return merged


def always(asked: Asked) -> Reply:
    """Applies what memory amends, and what the server suggests."""
    return Reply(json.dumps(task_of(asked) | suggested(asked)))


def never(asked: Asked) -> Reply:
    """Spoils what memory amends, and applies what the server suggests."""
    return Reply(json.dumps(without_memory(asked) | suggested(asked)))


if __name__ == "__main__":
    port, record, wait = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

    def slowly(asked: Asked) -> Reply:
        reply = always(asked)
        reply.wait = wait
        return reply

    program = Scripted(slowly, port, record)
    print(program.openai_url, flush=True)
    program.server.serve_forever()
