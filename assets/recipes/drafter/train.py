"""Train a drafter: a few decoder layers that write what a Whisper model would write.

    python assets/recipes/drafter/train.py --model DIR --lessons RUN/lessons --run RUN/drafter \
        --taught 0 5 --layers 0 5 --shortlist 8000 --minutes 30

Goes on from RUN/checkpoint.pt when that is there, so it can be killed at any time; the minutes
count over all runs. The layers begin as the teacher's of the same numbers, and keep attending to
the keys and values that these compute: the drafter shares the teacher's passes over sound. It can
write only the ids of a shortlist, those that are frequent in the lessons and in text: the whole
head would be most of a step's work. Uses no GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from lessons import Lesson, load_lesson
from safetensors.torch import load_file
from shortlist import make_shortlist
from student import Student
from torch import Tensor, nn
from tqdm import tqdm

IGNORED = -100
WARM_UP = 100  # steps
HELD_OUT = 16  # lessons, the first ones, which are not learned from
HARD = 0.5  # share of the loss that is of the ids written, not of the teacher's probabilities


@dataclass(frozen=True)
class Batch:
    """Lessons side by side; ids are padded at the end.

    ids: [batch, tokens]. keys, values: [batch, layers, heads, positions, head_dim].
    chosen: bool [batch, tokens], after which ids the teacher wrote another.
    labels: [chosen], what it wrote, as places in the shortlist; IGNORED for other ids.
    likely, probs: [chosen, LIKELY], likely ids as places in the shortlist, and their
        probabilities; 0 for ids that are not in it.
    """

    ids: Tensor
    keys: Tensor
    values: Tensor
    chosen: Tensor
    labels: Tensor
    likely: Tensor
    probs: Tensor


def batch_of(lessons: Sequence[Lesson], places: Tensor) -> Batch:
    """A batch; places: [vocab], the place of each id in the shortlist, or IGNORED."""
    longest = max(len(lesson.ids) for lesson in lessons) - 1
    ids = torch.zeros(len(lessons), longest, dtype=torch.long)
    chosen = torch.zeros(len(lessons), longest, dtype=torch.bool)
    for row, lesson in enumerate(lessons):
        count = len(lesson.ids) - 1
        ids[row, :count] = lesson.ids[:-1]
        chosen[row, lesson.prompt - 1 : count] = True
    likely = places[torch.cat([lesson.likely_ids for lesson in lessons])]
    probs = torch.cat([lesson.likely_probs for lesson in lessons]) * (likely != IGNORED)
    return Batch(
        ids,
        torch.stack([lesson.keys for lesson in lessons]),
        torch.stack([lesson.values for lesson in lessons]),
        chosen,
        places[torch.cat([lesson.ids[lesson.prompt :] for lesson in lessons])],
        likely.clamp_min(0),
        probs,
    )


def loss_of(student: Student, batch: Batch) -> tuple[Tensor, float]:
    """The loss, and the share of the teacher's ids that the student would have written."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = student(batch.ids, batch.keys, batch.values)[batch.chosen]
        logprobs = (hidden @ student.head.T).float().log_softmax(-1)
    hard = F.nll_loss(logprobs, batch.labels, ignore_index=IGNORED)
    taught = (batch.probs * logprobs.gather(1, batch.likely)).sum(-1)
    soft = -taught.sum() / batch.probs.sum()
    agreed = (logprobs.detach().argmax(-1) == batch.labels).float().mean()
    return HARD * hard + (1 - HARD) * soft, float(agreed)


class Lessons:
    """The lessons of a folder, more of which may come while they are read.

    Args:
        folder: where teach.py writes.
        places: of the student's layers, those of the files' layers.
    """

    def __init__(self, folder: Path, layers: list[int], seed: str) -> None:
        self._folder, self._layers, self._random = folder, layers, random.Random(seed)
        self._left: list[Path] = []

    def held_out(self) -> list[Lesson]:
        return [load_lesson(path, self._layers) for path in self._paths()[:HELD_OUT]]

    def draw(self, count: int) -> list[Lesson]:
        """Lessons at random; each comes once before any comes again."""
        if len(self._left) < count:
            self._left = self._paths()[HELD_OUT:]
            self._random.shuffle(self._left)
        drawn, self._left = self._left[:count], self._left[count:]
        return [load_lesson(path, self._layers) for path in drawn]

    def _paths(self) -> list[Path]:
        return sorted(self._folder.rglob("*.safetensors"))


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    run: Path = arguments.run
    run.mkdir(parents=True, exist_ok=True)
    config = json.loads((arguments.model / "config.json").read_text(encoding="utf-8"))
    shortlist = make_shortlist(
        arguments.model, arguments.lessons, arguments.data, arguments.shortlist, run
    )
    places = torch.full((config["vocab_size"],), IGNORED)
    places[torch.tensor(shortlist)] = torch.arange(len(shortlist))
    teacher = load_file(arguments.model / "model.safetensors")
    student = Student(teacher, config["decoder_attention_heads"], arguments.layers, shortlist)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1, betas=(0.9, 0.98), fused=True)
    checkpoint, step, before = run / "checkpoint.pt", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        student.load_state_dict(state["student"])
        optimizer.load_state_dict(state["optimizer"])
        step, before = state["step"], state["seconds"]
    in_file = [arguments.taught.index(layer) for layer in arguments.layers]
    lessons = Lessons(arguments.lessons, in_file, f"{arguments.seed}/{step}")
    test = batch_of(lessons.held_out(), places)
    parameters = sum(parameter.numel() for parameter in student.parameters())
    print(f"{parameters / 1e6:.1f} M parameters to train, {len(shortlist)} ids", flush=True)

    def save() -> None:
        state = {
            "student": student.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
            "layers": arguments.layers, "seconds": before + time.monotonic() - began,
        }  # fmt: skip
        torch.save(state, checkpoint.with_suffix(".part"))
        checkpoint.with_suffix(".part").replace(checkpoint)
        with torch.no_grad():
            loss, agreed = loss_of(student, test)
        bar.write(f"step {step}: held out: loss {loss:.3f}, {100 * agreed:.1f} % agree")

    budget, began = arguments.minutes * 60, time.monotonic()
    mean = 0.0
    with tqdm(total=round(budget), initial=round(before), unit="s", mininterval=10) as bar:
        while (spent := before + time.monotonic() - began) < budget:
            rate = arguments.rate * min((step + 1) / WARM_UP, 1) * max(0.02, 1 - spent / budget)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss, agreed = loss_of(student, batch_of(lessons.draw(arguments.batch), places))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            step, mean = step + 1, mean + 0.02 * (agreed - mean)
            bar.n = round(spent)
            if step % 50 == 0:
                bar.write(f"step {step}: loss {loss:.3f}, {100 * mean:.1f} % agree")
            if step % arguments.every == 0:
                save()
        save()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="the Whisper folder that teaches")
    parser.add_argument("--lessons", type=Path, required=True, help="what teach.py wrote")
    parser.add_argument("--run", type=Path, required=True, help="checkpoints")
    parser.add_argument("--data", type=Path, help="holds tatoeba-eng-deu/: text for the shortlist")
    parser.add_argument("--taught", type=int, nargs="+", required=True, help="teach.py's --layers")
    parser.add_argument("--layers", type=int, nargs="+", required=True, help="of these, to use")
    parser.add_argument("--shortlist", type=int, default=8000, help="ids of text to write")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8, help="windows")
    parser.add_argument("--rate", type=float, default=4e-4, help="the highest learning rate")
    parser.add_argument("--every", type=int, default=250, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
