"""Have a Whisper model write what it hears, for a drafter to learn from.

    python assets/recipes/drafter/teach.py --model DIR --speech RUN/speech --out RUN/lessons \
        --layers 0 5 --count 2000

The windows are put together from what recognition/speak.py spoke. They are decoded as
`Transcriber` does: greedily, with the same logit filters, with and without timestamps and the text
before. Of each window a file is kept (lessons.py): 3 MB for each of the teacher's layers named,
those that the drafter's will be made from. What is there is not made again.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lessons import LIKELY, Lesson, save_lesson, written
from tqdm import tqdm

from pipelines import SAMPLE_RATE, TranscribeOptions, Transcriber
from pipelines.asr.audio.features import FileFeatures
from pipelines.asr.fallback import WindowResult
from pipelines.asr.window import WindowSound
from pipelines.engine import EncodedSource, Engine
from pipelines.json_files import read_json_list

AT_ONCE = 16  # windows decoded together
WHOLE = 0.6  # of the windows are full of speech, which their end cuts off, as in a long recording
UNTIMED = 0.25  # are decoded without timestamps
CONTINUED = 0.25  # follow other text

Samples = np.ndarray  # float32, SAMPLE_RATE


class Speech:
    """Utterances of the shards that speak.py wrote, joined to windows at random."""

    def __init__(self, shards: Sequence[Path], window: int, seed: str) -> None:
        """window: samples of the longest window."""
        self._window, self._random = window, random.Random(seed)
        self._utterances: list[np.ndarray] = []  # int16
        for shard in shards:
            samples, start = np.load(shard.with_suffix(".npy"), mmap_mode="r"), 0
            for _, _, length in read_json_list(shard):
                self._utterances.append(samples[start : start + length])
                start += length

    def draw(self) -> Samples:
        """A window: utterances with pauses, each as loud as chance has it."""
        r = self._random
        whole = r.random() < WHOLE
        length = self._window if whole else int(self._window * r.uniform(0.15, 1))
        parts = [_silence(r.choice([0, 0.2, 0.5, 1.5]) * r.random())]
        while sum(map(len, parts)) < length:
            said = r.choice(self._utterances).astype(np.float32) / 32768
            if not whole and len(parts) > 1 and sum(map(len, parts)) + len(said) > length:
                break
            parts += [said * r.uniform(0.3, 1.3), _silence(r.uniform(0.15, 1.2))]
        samples = np.concatenate(parts)[: self._window]
        hiss = 10 ** (-r.uniform(30, 70) / 20)
        noise = np.random.default_rng(r.getrandbits(32)).standard_normal(len(samples), np.float32)
        return samples + hiss * noise


def _silence(seconds: float) -> Samples:
    return np.zeros(int(seconds * SAMPLE_RATE), np.float32)


class Teacher:
    """The model that the drafter learns from."""

    def __init__(self, folder: Path, layers: Sequence[int], language: str) -> None:
        self._engine = Engine(compute_type="auto", threads=torch.get_num_threads())
        self._transcriber = Transcriber(folder, engine=self._engine)
        recognizer = self._transcriber._recognizer
        self._layers, self._model = list(layers), recognizer.model
        self.window = int(recognizer.window_s * SAMPLE_RATE)
        self._frames, self._eot = recognizer.window_frames, recognizer.tokenizer.special.eot
        self._decoders = {
            timed: recognizer.window_decoder(
                language, TranscribeOptions(without_timestamps=not timed, temperature=0.0)
            )
            for timed in (True, False)
        }

    def lessons(
        self, windows: Sequence[Samples], timed: Sequence[bool], before: Sequence[Sequence[int]]
    ) -> Iterator[Lesson]:
        """Decode windows together; before: for each the tokens of the text before it."""
        bins = self._model.architecture.num_mel_bins
        mels = [FileFeatures(window, bins, self._frames).window(0)[0] for window in windows]
        encoded = self._model.encode(mels)
        decoders = [self._decoders[each] for each in timed]
        results = _run(
            [
                decoder.decode(WindowSound(source, self._frames, self._frames), previous, None)
                for decoder, source, previous in zip(decoders, encoded, before, strict=True)
            ]
        )
        for decoder, source, previous, result in zip(
            decoders, encoded, before, results, strict=True
        ):
            yield self._lesson(decoder.prompt(previous), source, [*result.tokens, self._eot])

    def _lesson(self, prompt: Sequence[int], source: EncodedSource, tokens: list[int]) -> Lesson:
        ids = [*prompt, *tokens]
        logits = self._model.score(source, ids[:-1])[len(prompt) - 1 :]
        likely = logits.softmax(-1).topk(LIKELY)
        return Lesson(
            torch.stack([source.keys[layer] for layer in self._layers]),
            torch.stack([source.values[layer] for layer in self._layers]),
            torch.tensor(ids),
            len(prompt),
            likely.indices,
            likely.values,
        )


def _run(tasks: Sequence[Generator[Any, None, WindowResult]]) -> list[WindowResult]:
    """The results of decode tasks. All are begun before the first is read: they share passes."""
    for task in tasks:
        next(task)
    results = []
    for task in tasks:
        while True:
            try:
                next(task)
            except StopIteration as end:
                results.append(end.value)
                break
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="the Whisper folder that teaches")
    parser.add_argument("--speech", type=Path, required=True, help="what speak.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="where the lessons go")
    parser.add_argument("--layers", type=int, nargs="+", required=True, help="of its decoder")
    parser.add_argument("--count", type=int, default=2000, help="windows")
    parser.add_argument("--language", default="en")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    done = len(list(out.glob("*.safetensors"))) // AT_ONCE * AT_ONCE
    teacher = Teacher(arguments.model, arguments.layers, arguments.language)
    speech = Speech(
        sorted(arguments.speech.glob("*.json")), teacher.window, f"{arguments.seed}/{done}"
    )
    r, texts = random.Random(f"{arguments.seed}/{done}"), [list[int]()]
    with tqdm(total=arguments.count, initial=done, unit="window", mininterval=10) as bar:
        for first in range(done, arguments.count, AT_ONCE):
            windows = [speech.draw() for _ in range(AT_ONCE)]
            timed = [r.random() >= UNTIMED for _ in windows]
            before = [r.choice(texts) if r.random() < CONTINUED else [] for _ in windows]
            paths = [out / f"{index:06}.safetensors" for index in range(first, first + AT_ONCE)]
            for path, lesson in zip(paths, teacher.lessons(windows, timed, before), strict=True):
                save_lesson(path, lesson)
            texts = [written(path)[:-1] for path in paths]
            bar.update(AT_ONCE)


if __name__ == "__main__":
    main()
