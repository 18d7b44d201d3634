"""Commands that are refused: options, inputs and names of models are checked before torch is
imported, which takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

# Runs the commands of stdin one after another. Each must be refused before torch is imported.
RUN = """
import contextlib, io, json, sys
from edgeapp.cli import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "transformers"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Finder())
results = []
for command in json.load(sys.stdin):
    sys.stdout, sys.stderr, sys.stdin = io.StringIO(), io.StringIO(), io.StringIO()
    code = 0
    try:
        main(command)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        code = repr(error)
    results.append([code, sys.stderr.getvalue(), "torch" in sys.modules])
print(json.dumps(results), file=sys.__stdout__)
"""

SPEECH, TEXT = "talk.flac", "talk.txt"
# Command → a part of its message.
REFUSED = {
    # Models.
    f"transcribe {SPEECH} -m nosuch": "nosuch",
    f"transcribe {SPEECH} -m demo-en-de": "cannot recognize speech",
    f"transcribe {SPEECH} --translate-to de -l en --translation-model nosuch": "nosuch",
    f"transcribe {SPEECH} --translate-to de --translation-model nosuch": "nosuch",
    f"transcribe {SPEECH} --translate-to ja -l en": "ja",
    f"transcribe {SPEECH} --draft-model nosuch": "nosuch",
    f"transcribe {SPEECH} -m demo -l xx": "xx",
    f"translate {TEXT} -m nosuch": "nosuch",
    f"translate {TEXT} -m demo": "cannot translate text",
    f"translate {TEXT} -m demo-en-de --draft-model nosuch": "nosuch",
    f"translate {TEXT} -t ja -f en": "ja",
    f"translate {TEXT} -f auto -m nosuch": "nosuch",
    f"read {TEXT} -m nosuch": "nosuch",
    "read page.png -m nosuch": "nosuch",
    "read page.png -m demo": "cannot read pictures",
    "read page.png --translate-to de --translation-model nosuch": "nosuch",
    "watch in out -m nosuch": "nosuch",
    "watch in out --translate-to de --translation-model nosuch": "nosuch",
    f"live --from-file {SPEECH} -m nosuch": "nosuch",
    f"live --from-file {SPEECH} --draft-model nosuch": "nosuch",
    f"live --from-file {SPEECH} -l en --translate-to de --translation-model nosuch": "nosuch",
    "bench speed nosuch": "nosuch",
    "bench live -m nosuch": "nosuch",
    "models verify nosuch": "nosuch",
    "models convert nosuch out.d": "nosuch",
    "models info nosuch": "nosuch",
    "models path nosuch": "nosuch",
    "models rm nosuch": "nosuch",
    # Inputs.
    "transcribe nosuch.mp3": "nosuch.mp3",
    "transcribe nosuch.mp3 -o out.d/": "nosuch.mp3",
    "transcribe --from-list nosuch.list": "nosuch.list",
    "translate nosuch.txt -t de": "nosuch.txt: there is no such file; --text translates words",
    "read nosuch.png": "nosuch.png",
    "watch nosuch.d out": "nosuch.d",
    "live --from-file nosuch.wav": "nosuch.wav",
    "bench live nosuch.wav": "nosuch.wav",
    "subtitles check nosuch.srt": "nosuch.srt",
    "ui --ssl-certfile nosuch.pem": "--ssl-keyfile",
    "serve --ssl-certfile nosuch.pem --ssl-keyfile nosuch.pem": "nosuch.pem",
    "history export 1": "no history",
    # Options.
    f"transcribe {SPEECH} --beam-size 0": "beam",
    f"transcribe {SPEECH} --temperature -1": "temperature",
    f"transcribe {SPEECH} --n-best 2": "--n-best",
    f"transcribe {SPEECH} --n-best 3 -f json --beam-size 2": "n_best",
    f"transcribe {SPEECH} --device gpu": "--device",
    f"transcribe {SPEECH} --compute-type int4": "int4",
    f"transcribe {SPEECH} --threads many": "many",
    f"transcribe {SPEECH} -l klingon": "klingon",
    f"transcribe {SPEECH} --translate-to klingon": "klingon",
    f"transcribe {SPEECH} --draft ngram --draft-model demo": "exclude each other",
    f"transcribe {SPEECH} --retry-failed": "--retry-failed",
    f"transcribe {SPEECH} --json": "--json",
    f"transcribe {SPEECH} --cluster local": "--cluster",
    f"transcribe {SPEECH} --cluster local -o out.d/ --draft ngram": "--draft",
    f"transcribe {SPEECH} --model-dir nosuch.d": "nosuch.d",
    f"transcribe {SPEECH} --vad-threshold 2": "threshold",
    f"translate {TEXT} --device gpu": "--device",
    f"translate {TEXT} --n-best 2": "--n-best",
    f"translate {TEXT} --n-best 3 --format json --beam-size 2": "n_best",
    f"translate {TEXT} --repetition-penalty 0": "repetition_penalty",
    f"translate {TEXT} --draft ngram --draft-model demo-en-de": "exclude each other",
    f"translate {TEXT} -f srt": "--format",
    f"translate {TEXT} -t klingon": "klingon",
    f"translate {TEXT} -m demo-en-de -t fr": "fr",
    f"translate {TEXT} --retry-failed": "--retry-failed",
    f"translate {TEXT} --json": "--json",
    f"translate {TEXT} --cluster local": "--cluster",
    "read page.png --batch-size 0": "batch",
    "read page.png --translate-to klingon": "klingon",
    "watch in out --translate-to klingon": "klingon",
    "watch in out -f nosuch": "nosuch",
    "watch in out -l klingon": "klingon",
    f"live --from-file {SPEECH} --speed -1": "--speed",
    f"live --from-file {SPEECH} --translate-to de -m demo-nosuch": "demo-nosuch",
    f"live --from-file {SPEECH} --min-chunk 0": "min_chunk",
    f"live --from-file {SPEECH} -l klingon": "klingon",
    f"live --from-file {SPEECH} --draft ngram --draft-model demo": "exclude each other",
    "live --input-device 0 --input-device 1 --input-device 2": "twice",
    f"live --from-file {SPEECH} -o talk.docx": "docx",
    "ui --memory-limit much": "much",
    "ui --host 0.0.0.0": "--auth",
    "ui --max-sessions 0": "max",
    "ui --trusted-proxy nobody": "nobody",
    "serve --memory-limit much": "much",
    "serve --device gpu": "--device",
    "serve --host 0.0.0.0": "--auth",
    "serve --auth nobody": "--auth",
    "bench speed --device gpu": "--device",
    "bench live --min-chunk 0": "min_chunk",
    "bench live --threads many": "many",
    "doctor nosuch": "unexpected extra",
    "demo nosuch": "unexpected extra",
    "jobs nosuch": "unexpected extra",
    "subtitles check talk.srt --style nosuch": "nosuch",
    "history delete": "history",
    "tokens revoke nosuch": "nosuch",
    "models convert demo": "Missing argument",
    "models convert demo out.d --compute-type int4": "int4",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Command → its exit code, what it wrote to stderr, and whether torch was imported."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / SPEECH).write_bytes(b"fLaC\0")
    (folder / TEXT).write_text("Hello.\n")
    (folder / "page.png").write_bytes(b"\x89PNG")
    (folder / "talk.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nHello.\n")
    (folder / "in").mkdir()
    commands = [command.split() for command in REFUSED]
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(commands), cwd=folder, capture_output=True,
        text=True, timeout=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(REFUSED, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("command", REFUSED)
def test_a_refused_command_has_not_imported_torch(
    command: str, results: dict[str, list[Any]]
) -> None:
    code, said, imported = results[command]
    assert not imported
    assert code in (1, 2, 3), f"{code}: {said}"
    assert REFUSED[command] in said
    assert "unexpected error" not in said
