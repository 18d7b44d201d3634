"""The files that one sentence and one recording go through, in the order of their first call.

python -m tests.call_path           # both, with the bundled models in int8
python -m tests.call_path sentence
python -m tests.call_path --markdown     # as assets/docs/architecture.md has them

Loading is left out: it happens once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["CallPath", "main", "markdown", "recording", "sentence"]

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass
class CallPath:
    """What a call went through.

    Attributes:
        files: In the order of their first call, relative to the repository.
        entered: Package → how often a call entered one of its files from outside that file.
    """

    files: list[str] = field(default_factory=list)
    entered: dict[str, int] = field(default_factory=dict)

    def follow(self, call: Callable[[], object]) -> None:
        """Run a call and record the functions of the library that it calls, in all threads."""
        import threading

        root = str(REPOSITORY / "pipelines")

        def profile(frame: FrameType, event: str, _: Any) -> None:
            name = frame.f_code.co_filename
            if event != "call" or not name.startswith(root):
                return
            short = name.removeprefix(f"{REPOSITORY}/")
            if short not in self.files:
                self.files.append(short)
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            if caller != name:
                package = short.rpartition("/")[0]
                self.entered[package] = self.entered.get(package, 0) + 1

        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


def sentence() -> CallPath:
    """One English sentence into German."""
    from pipelines import Translator

    translator = Translator("demo-en-de", device="cpu", compute_type="int8", threads=1)
    path = CallPath()
    translator.translate(["Where is the station?"])
    path.follow(lambda: translator.translate(["I would like a cup of coffee."]))
    return path


def recording() -> CallPath:
    """One recording of a question, as the command line transcribes it: several chunks at once."""
    from pipelines import Transcriber

    transcriber = Transcriber("demo", device="cpu", compute_type="int8", threads=1)
    audio = REPOSITORY / "assets" / "samples" / "question.flac"
    path = CallPath()
    list(transcriber.transcribe(audio, language="en", batch_size=8))
    path.follow(lambda: list(transcriber.transcribe(audio, language="en", batch_size=8)))
    return path


def markdown(path: CallPath) -> str:
    """Return the files of a call as lines of text, without the folder of the library."""
    lines = [""]
    for file in path.files:
        short = file.removeprefix("pipelines/") + (" →" if file != path.files[-1] else "")
        if len(lines[-1]) + len(short) >= 100:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + short
    return "\n".join(lines)


def main(names: list[str]) -> None:
    """Print the files of each call, and how often each package was entered."""
    as_markdown = "--markdown" in names
    names = [name for name in names if name != "--markdown"]
    for name, call in (("sentence", sentence), ("recording", recording)):
        if names and name not in names:
            continue
        path = call()
        if as_markdown:
            print(f"{name} ({len(path.files)} files):\n\n```\n{markdown(path)}\n```\n")
            continue
        print(f"{name}: {len(path.files)} files")
        for file in path.files:
            print(f"  {file}")
        for package, count in sorted(path.entered.items()):
            print(f"  {package} entered {count} times")


if __name__ == "__main__":
    main(sys.argv[1:])
