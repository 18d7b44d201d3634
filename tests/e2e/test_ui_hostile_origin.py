"""A website that a person visits, in a real browser, cannot use a server on their machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edgeapp.server.access.tokens import TokenFile
from tests.edgeapp.server.conftest import serving_routes

# Each attempt resolves to what it got through or read, or to "blocked".
HOSTILE = """<!doctype html><meta charset=utf-8><title>hostile</title><script>
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const tried = (promise) => promise.then((got) => String(got), () => "blocked");
const read = (path, options) => tried(fetch(TARGET + path, options).then((r) => r.text()));
const element = (tag, name, path) => new Promise((done) => {
  const one = document.createElement(tag);
  one.onload = one.onloadeddata = () => done("loaded"); one.onerror = () => done("blocked");
  one[name] = TARGET + path; document.body.append(one);
});
const socket = (path, protocols) => new Promise((done) => {
  const one = new WebSocket(TARGET.replace("http", "ws") + path, protocols ?? []);
  one.onopen = () => done("open"); one.onmessage = (e) => done(e.data);
  one.onerror = one.onclose = () => done("blocked");
});
const form = (path, type, fields) => new Promise((done) => {
  const frame = document.createElement("iframe"); frame.name = path; document.body.append(frame);
  const one = document.createElement("form");
  Object.assign(one, { action: TARGET + path, method: "post", enctype: type, target: path });
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement("textarea");
    field.name = name; field.value = value; one.append(field);
  }
  document.body.append(one);
  frame.onload = () => {
    if (frame.contentWindow.length === 0) {
      try { done(frame.contentDocument?.body?.textContent || "blocked"); }
      catch { done("blocked"); }
    }
  };
  one.submit(); wait(3000).then(() => done("blocked"));
});
const events = (path) => new Promise((done) => {
  const one = new EventSource(TARGET + path);
  one.onopen = () => done("open"); one.onerror = () => { one.close(); done("blocked"); };
});
const json = { "content-type": "application/json" };
const text = JSON.stringify({ q: "Good morning.", source: "en", target: "de" });
const all = async () => ({
  models: await read("v1/models"),
  withCookies: await read("v1/models", { credentials: "include" }),
  withToken: await read("v1/models", { headers: { authorization: "Bearer guess" } }),
  languages: await read("languages"),
  health: await read("health"),
  metrics: await read("metrics"),
  config: await read("config"),
  translate: await read("translate", { method: "post", headers: json, body: text }),
  plain: await read("translate", { method: "post", body: text }),
  upload: await read("gradio_api/upload", { method: "post", body: new FormData() }),
  put: await read("edgeapp/upload/abcdefgh", { method: "put", body: "x" }),
  image: await element("img", "src", "favicon.ico"),
  script: await element("script", "src", "edgeapp/static/frame.js"),
  sample: await element("audio", "src", "edgeapp/sample"),
  scriptOfData: await element("script", "src", "v1/models"),
  formText: await form("translate", "application/x-www-form-urlencoded",
                       { q: "Good morning.", source: "en", target: "de" }),
  formFile: await form("v1/audio/transcriptions", "multipart/form-data", { model: "whisper-1" }),
  login: await form("login", "application/x-www-form-urlencoded", { user: "a", password: "b" }),
  realtime: await socket("v1/realtime?intent=transcription"),
  named: await socket("v1/realtime?intent=transcription",
                      ["realtime", "openai-insecure-api-key.guess"]),
  live: await socket("v1/live?rate=16000"),
  page: await socket("edgeapp/session"),
  events: await events("gradio_api/queue/data?session_hash=abcdefgh"),
});
const opaque = async () => {
  for (const path of ["translate", "detect", "logout"])
    await fetch(TARGET + path, { method: "post", mode: "no-cors", body: text }).catch(() => 0);
  navigator.sendBeacon(TARGET + "translate", text);
  await wait(300);
};
</script><body>"""


@pytest.fixture
def hostile_site() -> Iterator[int]:
    """The port of a website whose page attacks the address in its query."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = self.path.partition("?")[2]
            body = f"<script>const TARGET = {json.dumps(target)}</script>{HOSTILE}".encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None: ...

    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    yield site.server_port
    site.shutdown()
    thread.join()
    site.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.localhost"])
def test_nothing_gets_through_and_nothing_is_read(
    browser: Any, hostile_site: int, tmp_path: Path, host: str
) -> None:
    log: list[str] = []
    with serving_routes(tmp_path, log=log.append) as url:
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(f"http://{host}:{hostile_site}/?{url}")
            got = page.evaluate("all()")
            page.evaluate("opaque()")
        finally:
            context.close()
    assert {name: what for name, what in got.items() if what != "blocked"} == {}
    requests = [json.loads(line) for line in log]
    assert len(requests) > 15, "the attempts reached the server"
    assert {request["route"] for request in requests} >= {"/translate", "/v1/realtime", "/v1/live"}
    assert {request["status"] for request in requests} <= {403, 405}, requests


def test_where_there_is_a_token_a_page_without_it_reads_why_it_is_refused(
    browser: Any, hostile_site: int, tmp_path: Path
) -> None:
    tokens, log = TokenFile(tmp_path / "tokens.json"), []
    tokens.add("laptop")
    with serving_routes(tmp_path, log=log.append, tokens=tokens) as url:
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{hostile_site}/?{url}")
            got = page.evaluate("all()")
            page.evaluate("opaque()")
        finally:
            context.close()
    read = {name: what for name, what in got.items() if what != "blocked"}
    assert set(read) == {"models", "withToken", "languages", "health", "translate", "plain"}
    for name, what in read.items():
        assert "a page of http://127.0.0.1" in what or "an API key is required" in what, name
    statuses = {json.loads(line)["status"] for line in log}
    assert statuses <= {204, 403, 405}, log


FRIENDLY = """async ([target, token]) => {
  const json = { "content-type": "application/json" };
  const bearer = { authorization: `Bearer ${token}` };
  const read = (path, options) => fetch(target + path, options).then((r) => r.json());
  const text = { q: "Gut.", source: "de", target: "de", api_key: token };
  const file = new FormData();
  for (const [name, value] of Object.entries(text)) file.append(name, value);
  file.append("file", new Blob(["Gut."]), "a b.txt");
  const stored = await read("translate_file", { method: "post", body: file });
  const live = await new Promise((done) => {
    const offered = ["realtime", `openai-insecure-api-key.${token}`];
    const one = new WebSocket(`${target.replace("http", "ws")}v1/live?rate=16000`, offered);
    one.onmessage = (event) => {
      done([one.protocol, JSON.parse(event.data).type]);
      one.close();
    };
    one.onclose = (event) => done(["closed", event.code]);
  });
  const absent = await fetch(target + "v1/models/none", { headers: bearer });
  return {
    models: (await read("v1/models", { headers: bearer })).object,
    translated: await read(
      "translate", { method: "post", headers: json, body: JSON.stringify(text) }),
    form: await read("translate", { method: "post", body: new URLSearchParams(text) }),
    query: await read(`languages?api_key=${token}`).then((all) => all.length > 0),
    file: await fetch(stored.translatedFileUrl, { headers: bearer }).then((r) => r.text()),
    error: [absent.status, (await absent.json()).error.param, absent.headers.has("x-request-id")],
    live,
  };
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", "friendly.localhost"])
def test_a_page_with_a_token_is_a_program(
    browser: Any, hostile_site: int, tmp_path: Path, host: str
) -> None:
    """Preflights, private networks and subprotocols as a real browser has them."""
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("laptop")
    with serving_routes(tmp_path, tokens=tokens) as url:
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(f"http://{host}:{hostile_site}/?{url}")
            got = page.evaluate(FRIENDLY, [url, secret])
        finally:
            context.close()
    assert got == {
        "models": "list",
        "translated": {"translatedText": "Gut."},
        "form": {"translatedText": "Gut."},
        "query": True,
        "file": "Gut.",
        "error": [404, "model", True],
        "live": ["realtime", "started"],
    }


def test_a_name_that_leads_here_is_not_this_machine(browser: Any, tmp_path: Path) -> None:
    """DNS rebinding: the website's own name resolves to 127.0.0.1, so that its origin is ours."""
    with serving_routes(tmp_path) as url:
        context = browser.new_context()
        try:
            page = context.new_page()
            reply = page.goto(f"{url.replace('127.0.0.1', 'evil.localhost')}v1/models")
            assert reply.status == 400
            assert "is not this machine's own name" in reply.text()
        finally:
            context.close()
