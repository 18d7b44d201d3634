"""Make speech to train on: sentences spoken by several synthesisers in many voices.

    python assets/recipes/recognition/speak.py --data ../shared/data --out DIR --count 40000

Sentences come from the train part of tatoeba-eng-deu (DATA/README.md says where that is from);
a share are strings of digits. Held out, for evaluation only: the voices rms and kal16 of flite.
Writes DIR/NAME.npy (all samples, int16, 16 kHz, one after the other) and DIR/NAME.json (one
[text, voice, samples] each). Needs `apt-get install espeak-ng flite`, for the other three also
`festival festvox-kdlpc16k` and, of Debian's non-free part, `rhvoice-english libttspico-utils`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile
import soxr
from tqdm import tqdm

RATE = 16_000
MAX_SECONDS = 8.0
DIGITS = "zero one two three four five six seven eight nine".split()
SPEAKABLE = re.compile(r"[A-Z][A-Za-z' ,?!.-]+[.?!]")

ACCENTS = (
    ["en-us"] * 5 + ["en-gb"] * 2 + ["en-gb-x-rp", "en-gb-scotland", "en-029", "en-gb-x-gbclan"]
)
VARIANTS = ["", "", "", *(f"+m{i}" for i in range(1, 9)), *(f"+f{i}" for i in range(1, 6))]
VARIANTS += [f"+{name}" for name in (
    "Alex Alicia Andrea Andy Annie Denis Diogo Gene Gustave Henrique Hugo Jacky Lee Marco Mario "
    "Michael Mike Mr Nguyen Reed RicishayMax Steph Storm antonio anikaRobot aunty belinda benjamin "
    "boris caleb david edward grandma grandpa ivan jason john kaukovalta klatt3 linda marcelo max "
    "michel miguel norbert pablo paul pedro quincy rob robert sandro shelby steph travis victor "
    "zac Adam Demonic Gene2 adam iven iven2 iven3 iven4 marcelo".split()
)]  # fmt: skip
FLITE = {"slt": 170, "awb": 120}
RHVOICE = ("bdl", "bdl", "clb", "alan", "slt")  # may be used for this; its other voices may not
PICO = ("en-US", "en-GB")
HELD_OUT = {"rms": 95, "kal16": 105}


@dataclass(frozen=True)
class Utterance:
    text: str
    voice: str
    samples: np.ndarray  # int16, RATE


def sentences(data: Path, part: str) -> list[str]:
    """The English side of one part, each sentence once, those that can be read as written."""
    with gzip.open(data / f"tatoeba-eng-deu/{part}.tsv.gz", "rt", encoding="utf-8") as file:
        english = {line.split("\t", 1)[0].strip() for line in file}
    fit = sorted(s for s in english if 5 <= len(s) <= 75 and SPEAKABLE.fullmatch(s))
    random.Random(5).shuffle(fit)
    return fit


def digit_string(r: random.Random, low: int = 1, high: int = 7) -> str:
    """As the model shall write it: "Three seven nine." """
    return " ".join(r.choice(DIGITS) for _ in range(r.randint(low, high))).capitalize() + "."


def espeak(text: str, voice: str, rate: int, pitch: int) -> tuple[np.ndarray, int]:
    command = ["espeak-ng", "-v", voice, "-s", str(rate), "-p", str(pitch), "--stdout", text]
    raw = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
    # The header's length fields are not filled in when streaming: 44 bytes, then 16-bit samples.
    samples = np.frombuffer(raw[44 : len(raw) // 2 * 2], dtype="<i2")
    return samples.astype(np.float32) / 32768, 22_050


def filed(command: list[str], text: str = "") -> tuple[np.ndarray, int]:
    """What a command writes to the file that "OUT" stands for; the text goes to its input."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        command = [file.name if word == "OUT" else word for word in command]
        subprocess.run(command, input=text.encode(), capture_output=True, timeout=30, check=True)
        samples, rate = soundfile.read(io.BytesIO(Path(file.name).read_bytes()), dtype="float32")
    return samples, rate


def flite(text: str, voice: str, stretch: float, f0: float) -> tuple[np.ndarray, int]:
    command = ["flite", "-voice", voice, "--setf", f"duration_stretch={stretch:.2f}"]
    return filed([*command, "--setf", f"int_f0_target_mean={f0:.0f}", "-t", text, "-o", "OUT"])


def rhvoice(text: str, voice: str, rate: int, pitch: int) -> tuple[np.ndarray, int]:
    command = ["RHVoice-test", "-p", voice, "-r", str(rate), "-t", str(pitch), "-o", "OUT"]
    return filed(command, text)


def pico(text: str, voice: str, rate: int, pitch: int) -> tuple[np.ndarray, int]:
    told = f"<pitch level='{pitch}'><speed level='{rate}'>{text}</speed></pitch>"
    return filed(["pico2wave", "-l", voice, "-w", "OUT", told])


def festival(text: str, stretch: float, f0: float) -> tuple[np.ndarray, int]:
    """The man ked: the one English voice of festival that is nobody's of the others."""
    settings = (
        "(begin (voice_ked_diphone) (set! int_lr_params '"
        f"((target_f0_mean {f0:.0f}) (target_f0_std {f0 / 7:.0f}) "
        f"(model_f0_mean 170) (model_f0_std 34))) (Parameter.set 'Duration_Stretch {stretch:.2f}))"
    )
    return filed(["text2wave", "-eval", settings, "-o", "OUT"], text)


@dataclass(frozen=True)
class Cast:
    """Whom to draw from: one voice only, or shares of synthesisers, espeak-ng for the rest.

    f0: the pitch of flite's voices, times their own.
    """

    only: str | None = None
    shares: tuple[tuple[str, float], ...] = (("flite", 0.3),)
    f0: tuple[float, float] = (0.75, 1.3)

    def draw(self, r: random.Random) -> str:
        """A synthesiser."""
        if self.only is not None:
            return "flite" if self.only in FLITE or self.only in HELD_OUT else "espeak"
        point = r.random()
        for name, share in self.shares:
            if point < share:
                return name
            point -= share
        return "espeak"


def act(text: str, r: random.Random, cast: Cast) -> tuple[str, np.ndarray, int]:
    """A voice, its samples and their rate."""
    synthesiser = cast.draw(r)
    if synthesiser == "flite":
        voice = cast.only or r.choice(list(FLITE))
        spread = (0.97, 1.03) if cast.only else cast.f0
        f0 = (FLITE | HELD_OUT)[voice]
        made = flite(text, voice, r.uniform(0.8, 1.2), f0 * r.uniform(*spread))
    elif synthesiser == "rhvoice":
        voice = r.choice(RHVOICE)
        made = rhvoice(text, voice, r.randint(70, 125), r.randint(70, 140))
    elif synthesiser == "pico":
        voice = r.choice(PICO)
        made = pico(text, voice, r.randint(85, 140), r.randint(55, 130))
    elif synthesiser == "festival":
        voice = "ked"
        made = festival(text, r.uniform(0.75, 1.2), r.uniform(70, 190))
    else:
        voice = cast.only or r.choice(ACCENTS) + r.choice(VARIANTS)
        made = espeak(text, voice, r.randint(130, 210), r.randint(20, 80))
    return f"{synthesiser}:{voice}", *made


def speak(
    text: str, r: random.Random, cast: Cast, longest: float = MAX_SECONDS
) -> Utterance | None:
    """One utterance in a random voice, cut to the speech itself; None when it is too long, or this
    machine's espeak-ng lacks the voice."""
    try:
        voice, samples, rate = act(text, r, cast)
    except (subprocess.SubprocessError, soundfile.LibsndfileError):
        return None
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    if len(loud) < rate // 10:
        return None
    margin = rate // 50
    samples = samples[max(0, loud[0] - margin) : loud[-1] + margin]
    if len(samples) > longest * rate:
        return None
    samples = soxr.resample(samples, rate, RATE) if rate != RATE else samples
    peak = np.abs(samples).max() / 0.7
    return Utterance(text, voice, (samples / peak * 32767).clip(-32768, 32767).astype(np.int16))


def paragraphs(texts: list[str], most: int, seed: int) -> list[str]:
    """The texts in their order, one to `most` of them joined into one."""
    r, joined, start = random.Random(seed), [], 0
    while start < len(texts):
        count = r.randint(1, most)
        joined.append(" ".join(texts[start : start + count]))
        start += count
    return joined


def utterances(
    texts: list[str],
    seed: int,
    workers: int,
    digits: float,
    cast: Cast,
    longest: float = MAX_SECONDS,
) -> Iterator[Utterance]:
    def one(index: int) -> Utterance | None:
        r = random.Random(f"{seed}/{index}")
        text = digit_string(r) if r.random() < digits else texts[index]
        return speak(text, r, cast, longest)

    return _made(one, len(texts), workers)


def counting(voices: int, seed: int, workers: int, cast: Cast) -> Iterator[Utterance]:
    """The ten digits one by one, by so many voices: "espeak:en-us+m3 17" says all of them alike."""

    def one(index: int) -> Utterance | None:
        r, text = random.Random(f"{seed}/{index // 10}"), DIGITS[index % 10].capitalize() + "."
        said = speak(text, r, cast)
        return said and replace(said, voice=f"{said.voice} {index // 10}")

    return _made(one, 10 * voices, workers)


def _made(one: Callable[[int], Utterance | None], count: int, workers: int) -> Iterator[Utterance]:
    """What there is of `count` utterances, in order."""
    with ThreadPoolExecutor(workers) as pool:
        yield from (done for done in pool.map(one, range(count)) if done is not None)


def save(path: Path, spoken: list[Utterance], packed: bool = False) -> None:
    """The shard that windows.Utterances reads; packed as Opus, in a ninth of the space."""
    samples = np.concatenate([u.samples for u in spoken])
    if packed:
        soundfile.write(path.with_suffix(".opus"), samples, RATE, format="OGG", subtype="OPUS")
    else:
        np.save(path.with_suffix(".npy"), samples)
    meta = [[u.text, u.voice, len(u.samples)] for u in spoken]
    path.with_suffix(".json").write_text(json.dumps(meta), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder that holds tatoeba-eng-deu/"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="train-0")
    parser.add_argument("--part", default="train", choices=["train", "dev", "test"])
    parser.add_argument("--skip", type=int, default=0, help="sentences that other runs have taken")
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--digits", type=float, default=0.08, help="share of digit strings")
    parser.add_argument(
        "--join", type=int, default=1, metavar="MOST", help="sentences spoken in one go, at most"
    )
    parser.add_argument(
        "--longest", type=float, default=MAX_SECONDS, help="seconds of an utterance"
    )
    parser.add_argument(
        "--counting", type=int, default=0, metavar="VOICES",
        help="no sentences, but the ten digits one by one, by so many voices",
    )  # fmt: skip
    parser.add_argument(
        "--voice", help="only this one: slt, awb, rms, kal16, or one of espeak-ng's"
    )
    for name, share in (("flite", 0.3), ("rhvoice", 0.0), ("pico", 0.0), ("festival", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=share, help=f"share of {name}")
    parser.add_argument(
        "--f0", type=float, nargs=2, default=(0.75, 1.3), metavar=("LOW", "HIGH"),
        help="pitch of flite's voices, times their own: from 0.5 a woman's voice is a man's too",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--opus", action="store_true", help="pack it, to train on it on another machine"
    )
    arguments = parser.parse_args()
    texts = sentences(arguments.data, arguments.part)
    texts = (texts * (1 + (arguments.skip + arguments.count) // len(texts)))[arguments.skip :]
    texts = texts[: arguments.count]
    arguments.out.mkdir(parents=True, exist_ok=True)
    given = vars(arguments)
    shares = tuple((name, given[name]) for name in ("flite", "rhvoice", "pico", "festival"))
    cast = Cast(arguments.voice, shares, tuple(arguments.f0))
    if arguments.counting:
        total = 10 * arguments.counting
        made = counting(arguments.counting, arguments.seed, arguments.workers, cast)
    else:
        if arguments.join > 1:
            texts = paragraphs(texts, arguments.join, arguments.seed)
        total = len(texts)
        made = utterances(
            texts, arguments.seed, arguments.workers, arguments.digits, cast, arguments.longest
        )
    spoken = list(tqdm(made, total=total, unit="utt", smoothing=0.05))
    save(arguments.out / arguments.name, spoken, arguments.opus)
    hours = sum(len(u.samples) for u in spoken) / RATE / 3600
    print(f"{len(spoken)} utterances, {hours:.1f} hours, {arguments.out / arguments.name}")


if __name__ == "__main__":
    main()
