"""A fork of a process that has loaded a model gets a clear error, and never hangs or crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np
from pipelines import EdgeError, LiveTranscriber, Reader, Transcriber, Translator, load_audio
audio = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
speech = load_audio("assets/samples/question.flac")
transcriber = Transcriber("demo", compute_type="{compute_type}", threads=2)
translator = Translator("demo-en-de", engine=transcriber.engine)
model = translator.model
if {used}:
    list(transcriber.transcribe(audio, batch_size=1))
    translator.translate("Hello.")
(encoded,) = model.encode([[4, 0]]) if {used} else (None,)
live = LiveTranscriber(transcriber)
uses = [
    lambda: list(transcriber.transcribe(audio, batch_size=1)),
    lambda: transcriber.detect_language(audio),
    lambda: translator.translate("Hello."),
    lambda: model.encode([[4, 0]]),
    lambda: transcriber.engine.load("."),
    lambda: transcriber.engine.unload(model),
    lambda: live.feed(speech) + live.finish(),
]
child = os.fork()
if child == 0:
    signal.alarm(60)
    for use in uses:
        try:
            use()
            print("no error")
        except EdgeError as error:
            print(type(error).__name__, error)
    with transcriber:
        pass
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
ERROR = (
    "EngineError a model cannot be used in a fork of the process that loaded it; load it in the "
    'child process, or start that with the "spawn" method'
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("compute_type", ["int8", "float32"])
@pytest.mark.parametrize("used", [True, False])
def test_a_fork_is_refused(used: bool, compute_type: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(used=used, compute_type=compute_type)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    *printed, status = done.stdout.splitlines()
    assert (printed, status) == ([ERROR] * 7, "5"), done.stderr
