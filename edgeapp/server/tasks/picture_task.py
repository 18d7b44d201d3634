"""Reading of an uploaded picture, streamed token by token, with its translation."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeapp.priorities import Priority
from edgeapp.server.sessions import TaskCancelled
from edgeapp.server.tasks.cancellable_task import UploadTask

if TYPE_CHECKING:
    from edgeapp.history import History
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.page.picker_options import ModelChoice
    from edgeapp.server.sessions import Send
    from pipelines import Reader
    from pipelines.reading import ReadLine

__all__ = ["LARGEST_PICTURE_MB", "LONGEST_PROMPT", "PictureTask"]

LONGEST_PROMPT = 500  # characters
LARGEST_PICTURE_MB = 64  # it is read into memory
_MOST_PIXELS = 40_000_000  # a page of A4 at 600 dpi has 35 million
_BYTES_PER_PIXEL = 16  # while it is decoded


class PictureTask(UploadTask):
    """Reads, and optionally translates, a picture.

    Args:
        pool: The shared models.
        history: Where the text is stored.
        choice: Models and languages.
        path: The uploaded file. The task owns it, and deletes it.
        name: The file's name on the user's machine, for the history.
        prompt: Text that the model begins with; "" for none.
    """

    kind = "picture"

    def __init__(
        self,
        pool: ModelPool,
        history: History,
        choice: ModelChoice,
        path: Path,
        name: str,
        prompt: str,
    ) -> None:
        super().__init__(path)
        self._pool, self._history, self._choice = pool, history, choice
        self._name, self._prompt = name, prompt

    def run(self, send: Send) -> None:
        choice, pool = self._choice, self._pool
        try:
            reader = pool.reader(choice.model)
            with pool.using(reader):
                text = self._read(reader, self._path.read_bytes(), send)
        except FileNotFoundError:
            raise TaskCancelled from None  # `cancel` has deleted it
        finally:
            self._path.unlink(missing_ok=True)
        translation = self._translate(text, send) if choice.target and text.strip() else ""
        record = None
        if text.strip():
            record = self._history.add_text(
                text,
                translation,
                title=self._name,
                language=choice.language,
                target=choice.target,
                model=pool.name_of(reader),
            )
        send({"type": "picture_done", "record": record})

    def _read(self, reader: Reader, content: bytes, send: Send) -> str:
        """The text of the picture. Raises InputError if it is none."""
        from pipelines import ReadOptions
        from pipelines.notices import collect_notices
        from pipelines.reading import LineDelta, LineDone, LinesFound

        room = min(_MOST_PIXELS, self._pool.memory_limit.free_bytes / _BYTES_PER_PIXEL)
        options = ReadOptions(
            prompt=self._prompt or None, priority=Priority.INTERACTIVE, max_pixels=max(1, int(room))
        )
        lines: list[str] = []
        with collect_notices() as notices:  # the picture is opened here
            stream = reader.stream(content, options)
        for each in notices:
            send({"type": "warning", "message": each.message})
        with closing(stream) as events:
            for event in events:
                self.check()
                if isinstance(event, LinesFound):
                    send({"type": "picture_lines", "boxes": event.boxes})
                elif isinstance(event, LineDelta):
                    send({"type": "picture_delta", "text": event.text})
                elif isinstance(event, LineDone):
                    lines.append(event.line.text)
                    send({"type": "picture_line", "line": _line(event.line)})
        return "\n".join(lines)

    def _translate(self, text: str, send: Send) -> str:
        """The translation of all lines as one text: sentences go over the ends of lines."""
        from pipelines import TranslateOptions, TranslationDelta, TranslationDone

        choice, pool, result = self._choice, self._pool, ""
        translator = pool.translator(choice.translation_model, choice.language, choice.target)
        options = TranslateOptions(
            target=choice.target if translator.target_codes else None,
            source_language=choice.language,
        )
        with ExitStack() as stack:
            stack.enter_context(pool.using(translator))
            events = translator.stream(" ".join(text.split()), options)
            for event in stack.enter_context(closing(events)):
                self.check()
                if isinstance(event, TranslationDelta):
                    send({"type": "picture_translating", "text": event.text})
                elif isinstance(event, TranslationDone):
                    result = event.translation.text
                    warnings = event.translation.warnings
                    send({"type": "picture_translated", "text": result, "warnings": warnings})
        return result


def _line(line: ReadLine) -> dict[str, Any]:
    return {
        "text": line.text,
        "score": round(line.score, 4),
        "box": line.box,
        "complete": line.complete,
    }
