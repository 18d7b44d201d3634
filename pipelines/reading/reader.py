"""Reads pictures with an encoder-decoder: TrOCR, Donut, captioning models."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from PIL import Image, ImageOps

from pipelines.engine import (
    Engine,
    FinishReason,
    ForcedPrefix,
    GenerationOptions,
    LoadedModel,
    Request,
    SlowModel,
    Stream,
)
from pipelines.errors import EngineError, ModelError, OptionError
from pipelines.hub import assets_folder, folder_or_pull, reads_lines
from pipelines.notices import collect_notices, notice
from pipelines.processors import open_image_processor, open_text_tokenizer
from pipelines.reading.lines import find_lines
from pipelines.reading.pictures import Picture, open_picture
from pipelines.reading.results import (
    Box,
    LineDelta,
    LineDone,
    LinesFound,
    PictureText,
    ReadEvent,
    ReadLine,
    ReadOptions,
)
from pipelines.text import StreamingDetokenizer

_WIDEST, _TALLEST = 100, 10  # width : height, and height : width; lines of text are less wide
_MOST_TOKENS = 1024  # of a line, for models that state no limit


class Reader:
    """A model that reads pictures, usable from any thread.

        with Reader("microsoft/trocr-base-printed") as reader:
            print(reader.read("page.png").text)

    Args:
        model: A folder, or a name that pipelines.hub resolves.
        engine: An engine to share. Without one, a new one is made and closed with the reader.
        device: Of the own engine: "auto", "cpu", "cuda", "cuda:N".
        threads: CPU threads of the own engine, or "auto".
        name: What messages call the model.
        download: Fetch a model that is not on this machine from the Hugging Face hub.

    Attributes:
        engine: The engine.
        model: The loaded model.
        name: See above.
        reads_lines: The model was trained on single lines.

    Raises:
        ModelNotFound: The model is not on this machine, and was not fetched.
        CheckpointError: The folder is incomplete or damaged.
        ModelError: The model does not read pictures.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        engine: Engine | None = None,
        device: str = "auto",
        threads: int | Literal["auto"] = "auto",
        name: str | None = None,
        download: bool = False,
    ) -> None:
        folder = folder_or_pull(model, download)
        self.name = Path(name or model).name
        self._closed, self._owns_engine = False, engine is None
        self.engine = engine or Engine(device=device, threads=threads)
        try:
            self.model = self._load(folder)
            if self.model.architecture.source != "other":
                raise ModelError(f"{self.name} does not read pictures: it takes text or sound")
            self._processor = open_image_processor(folder)
            self._tokenizer = open_text_tokenizer(folder)
        except BaseException:
            self.close()
            raise
        self.reads_lines = reads_lines(folder)
        self._special = frozenset(self._tokenizer.all_special_ids)

    def read(self, picture: Picture, options: ReadOptions | None = None) -> PictureText:
        """Read a picture.

        Args:
            picture: A path, the content of a file, or an image of PIL.
            options: How to read.

        Raises:
            InputError: The picture cannot be opened.
            OptionError: The prompt does not fit the model.
            EngineError: The generation failed, or the reader was closed.
        """
        events = self.stream(picture, options)
        return PictureText(tuple(event.line for event in events if isinstance(event, LineDone)))

    def stream(
        self, picture: Picture, options: ReadOptions | None = None
    ) -> Generator[ReadEvent, None, None]:
        """Read a picture and yield its text while it is generated.

        Closing the generator cancels the rest. Arguments and errors are those of `read`; the
        picture is opened at once.

        Yields:
            LinesFound, then for each line LineDelta events and a LineDone.
        """
        if self._closed:
            raise EngineError(f"this reader of {self.name} is closed; make a new one")
        self.engine.check_process()
        options = options or ReadOptions()
        prompt = self._prompt(options)
        image = open_picture(picture, options.max_pixels)
        finds = options.lines == "find" or (options.lines == "auto" and self.reads_lines)
        boxes = find_lines(image) if finds else [(0, 0, image.width, image.height)]
        return self._events(image, boxes, prompt, options)

    def close(self) -> None:
        """End the reader. The engine is closed if the reader made it."""
        self._closed = True
        if self._owns_engine:
            self.engine.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _load(self, folder: Path) -> LoadedModel:
        """That a bundled model is run by transformers is no news: nobody chose it for its speed."""
        bundled = folder.parent == assets_folder() / "models"
        with collect_notices() as notices:
            model = self.engine.load(folder)
        for each in notices:
            if not (bundled and each.category is SlowModel):
                notice(each.message, each.category)
        return model

    def _prompt(self, options: ReadOptions) -> tuple[int, ...]:
        if not options.prompt:
            return ()
        ids: list[int] = self._tokenizer(options.prompt, add_special_tokens=False)["input_ids"]
        if len(ids) + 2 > self.model.architecture.max_target_positions:
            raise OptionError(f"the prompt of {len(ids)} tokens is too long for {self.name}")
        return tuple(ids)

    def _events(
        self,
        image: Image.Image,
        boxes: Sequence[Box],
        prompt: tuple[int, ...],
        options: ReadOptions,
    ) -> Generator[ReadEvent, None, None]:
        yield LinesFound(tuple(boxes))
        for start in range(0, len(boxes), options.batch_size):
            part = boxes[start : start + options.batch_size]
            encoded = self.model.encode([self._pixels(image.crop(box)) for box in part])
            streams = [self._generate(source, prompt, options) for source in encoded]
            try:
                for box, stream in zip(part, streams, strict=True):
                    yield from self._line(box, stream, len(prompt))
            finally:
                for stream in streams:
                    stream.cancel()

    def _pixels(self, image: Image.Image) -> Any:
        """Pixels [channels, height, width] as the model takes them.

        What is very wide or high is padded: processors that keep the shape would scale the other
        side to nothing.
        """
        width, height = image.size
        shape = max(width, -(-height // _TALLEST)), max(height, -(-width // _WIDEST))
        if shape != image.size:
            paper: Any = image.getpixel((width - 1, height - 1))
            image = ImageOps.pad(image, shape, color=paper)
        return self._processor(image, return_tensors="pt")["pixel_values"][0]

    def _generate(self, encoded: Any, prompt: tuple[int, ...], options: ReadOptions) -> Stream:
        """Start the generation of a line. The prompt is forced, and computed as a draft."""
        architecture = self.model.architecture
        room = min(_MOST_TOKENS, architecture.max_target_positions) - 1
        limit = min(room, len(prompt) + (options.max_new_tokens or room))
        return self.model.stream(
            Request(
                encoded,
                (architecture.start_id,),
                GenerationOptions(
                    max_new_tokens=limit,
                    eos_ids=architecture.eos_ids,
                    beam_size=options.beam_size,
                    logprobs=True,
                    logit_filters=(ForcedPrefix(prompt),) if prompt else (),
                ),
                priority=options.priority,
                draft=prompt,
            )
        )

    def _line(self, box: Box, stream: Stream, prompt_tokens: int) -> Iterator[ReadEvent]:
        tokens: list[int] = []
        logprobs: list[float] = []
        detokenizer, complete = StreamingDetokenizer(self._text), False
        for event in stream:
            new = event.tokens[max(0, prompt_tokens - len(tokens)) :]
            tokens += event.tokens
            logprobs += event.logprobs
            complete = event.reason is FinishReason.EOS
            if delta := detokenizer.push(new):
                yield LineDelta(delta)
        tokens, logprobs = tokens[prompt_tokens:], logprobs[prompt_tokens:]
        score = sum(logprobs) / max(1, len(logprobs))
        yield LineDone(ReadLine(self._text(tokens), box, score, tuple(tokens), complete))

    def _text(self, ids: Sequence[int]) -> str:
        kept = [index for index in ids if index not in self._special]
        text: str = self._tokenizer.decode(kept)
        return text.strip()
