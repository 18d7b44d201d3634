"""`edgeapp serve` in a process of its own: what it has accepted it finishes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from edgeapp.exit_codes import DONE
from pipelines.hub import assets_folder

_STARTS_S = 400.0


def test_sigterm_finishes_what_was_accepted_and_the_log_has_a_line_for_each_request(
    environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    command = [sys.executable, "-m", "edgeapp", "serve", "--port", "0", "--threads", "1"]
    environment["EDGEAPP_HISTORY"] = str(tmp_path / "history.db")
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stderr=file, cwd=tmp_path)
    try:
        deadline = time.monotonic() + _STARTS_S
        found = None
        while found is None:
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < deadline
            time.sleep(0.05)
            found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text("utf-8"))
        url = found[0]
        recording = (assets_folder() / "samples" / "story.flac").read_bytes()
        replies: list[httpx.Response] = []

        def transcribe() -> None:
            files = {"file": ("secret name.flac", recording)}
            replies.append(
                httpx.post(f"{url}v1/audio/transcriptions", files=files,
                           data={"model": "whisper-1", "prompt": "secret prompt"}, timeout=400)
            )  # fmt: skip

        client = threading.Thread(target=transcribe)
        client.start()
        while "edgeapp_working 1" not in httpx.get(f"{url}metrics", timeout=400).text:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        client.join(400)
        (reply,) = replies
        assert reply.status_code == 200
        assert reply.json()["text"]
        assert process.wait(180) == DONE
    finally:
        process.kill()
        process.wait(180)
    said = log.read_text("utf-8")
    assert "Traceback" not in said
    assert said.endswith("edgeapp: the server has ended\n")
    assert "secret" not in said
    assert not any(word in said for word in reply.json()["text"].split() if len(word) > 9)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (line,) = [each for each in lines if each["route"] == "/v1/audio/transcriptions"]
    assert line["request"] == reply.headers["x-request-id"]
    assert line["status"] == 200
    assert len({each["request"] for each in lines}) == len(lines)
