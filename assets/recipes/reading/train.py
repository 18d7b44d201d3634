"""Train the bundled line reader: a vision transformer over columns, a TrOCR decoder of characters.

    python assets/recipes/reading/train.py --data ../shared/data --fonts /usr/share/fonts \
        --run DIR --minutes 60

Goes on from RUN/checkpoint.pt when that is there, so it can be killed at any time; the minutes
are those of the CPU and count over all runs. Lines are drawn while it trains, short and clean ones
first. Where each character lies is known then, so an auxiliary head on the encoder learns to name
the character at each place, and the decoder's attention is led there at first. The head is dropped
at export.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from batches import FRAME, IGNORED, PAPER, Batch, Feed, collate, fitted
from faces import Faces
from model import COLUMN, decode, encode, new_model, whiten
from render import LONGEST, clean_image, scanned_image
from scoring import error_rate, read_back
from texts import Texts
from torch import Tensor, nn
from transformers import VisionEncoderDecoderModel

PEAK_RATE, WARM_UP = 2.5e-3, 100
SMOOTHING = 0.05
# Steps in which lines grow, and disguises. Batches are small at first: what counts then is the
# number of steps.
SHORT_UNTIL, CLEAN_UNTIL = 1_000, 3_000
# Steps in which the decoder is shown where to look, less and less.
GUIDED_UNTIL = 3_000
SHORTEST, FEWEST = 8, 0.4  # characters of a line, share of the columns of a batch, at first
CHECKED = 48  # lines of each kind
LOGGED = 25  # steps


def losses(
    model: VisionEncoderDecoderModel, head: nn.Linear, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """Three cross-entropies: of the characters that the decoder writes, of those of frames, and of
    the columns that the decoder looks at."""
    with torch.autocast("cpu", torch.bfloat16):
        encoded = encode(model, batch.pixels, batch.first)
        out, attended = decode(model, batch.inputs, encoded)
        seen = head(encoded[:, 1:])
    written = F.cross_entropy(
        out.float().flatten(0, 1), batch.labels.flatten(),
        ignore_index=IGNORED, label_smoothing=SMOOTHING,
    )  # fmt: skip
    frames = seen.float().view(-1, PAPER + 1)
    return written, F.cross_entropy(frames, batch.frames.flatten()), _looked(attended, batch)


def _looked(attended: Sequence[Tensor], batch: Batch) -> Tensor:
    """How far attention is from where the characters lie.

    The first layer is to find the character that was written last, and the last one, which gets to
    know where that was, the next one. One column more on both sides counts, too.
    """
    real = batch.labels != IGNORED
    found = []
    for weights, spots in ((attended[0], batch.spots[:, :-1]), (attended[-1], batch.spots[:, 1:])):
        columns = weights.float().mean(1)[..., 1:]  # not the class token
        around = spots[..., None] + torch.arange(-1, 2)
        inside = (around >= 0) & (around < columns.shape[-1])
        mass = columns.gather(-1, around.clamp(0, columns.shape[-1] - 1)) * inside
        found.append(-(mass.sum(-1) + 1e-4).log()[real].mean())
    return torch.stack(found).mean()


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    run: Path = arguments.run
    run.mkdir(parents=True, exist_ok=True)
    model = new_model(arguments.width, arguments.encoder_layers, arguments.decoder_layers)
    # With bfloat16 1.5 times as fast as torch's; and the decoder's weights are needed.
    model.encoder.set_attn_implementation("eager")
    model.decoder.set_attn_implementation("eager")
    head = nn.Linear(arguments.width, COLUMN // FRAME * (PAPER + 1))
    print(f"{model.num_parameters() / 1e6:.2f} M parameters", flush=True)
    parameters = [*model.parameters(), *head.parameters()]
    optimizers = optimizers_of(model, head)
    checkpoint, step, before, pool = run / "checkpoint.pt", 0, 0.0, 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        head.load_state_dict(state["head"])
        for optimizer, content in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(content)
        step, before, pool = state["step"], state["seconds"], state["pool"]
    faces = Faces(arguments.fonts, held_out=False)
    print(f"{len(faces.families)} families of fonts", flush=True)
    feed = Feed(Texts(arguments.data, "train"), faces, arguments.columns, arguments.seed, pool)
    checks = held_out_lines(arguments.data, arguments.fonts)
    batches = iter(feed)
    if not step:
        feed.longest = SHORTEST
        whiten(model, next(batches).pixels)
    budget, began, saved = arguments.minutes * 60, time.process_time(), before
    model.train()
    sums = torch.zeros(3)
    while (spent := before + time.process_time() - began) < budget:
        done = spent / budget
        rate = arguments.rate * min((step + 1) / WARM_UP, 1) * max(0.01, 1 - done)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        short = min(1, step / SHORT_UNTIL)
        feed.longest = round(SHORTEST + (LONGEST - SHORTEST) * short)
        feed.columns = round(arguments.columns * (FEWEST + (1 - FEWEST) * short))
        feed.strength = min(1.0, 0.1 + step / CLEAN_UNTIL)
        feed.full = 0 if short < 1 else 0.05 if done < 0.7 else 0.2
        written, seen, looked = losses(model, head, next(batches))
        weight = 1 - 0.7 * short if done < 0.7 else 0.15
        guidance = max(0.0, 1 - step / GUIDED_UNTIL)
        model.zero_grad()
        head.zero_grad()
        (written + weight * seen + guidance * looked).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        sums += torch.stack((written, seen, looked)).detach()
        if step % LOGGED == 0:
            written, seen, looked = sums / LOGGED
            sums.zero_()
            print(
                f"step {step} written {written:.3f} seen {seen:.3f} looked {looked:.3f} "
                f"{spent / 60:.2f} min pool {feed.pool}",
                flush=True,
            )
        if spent - saved > 60 * arguments.every:
            saved = spent
            save(
                run, model, head, optimizers, step, before + time.process_time() - began, feed.pool
            )
            report(model, checks)
    save(run, model, head, optimizers, step, before + time.process_time() - began, feed.pool)
    report(model, checks)


def optimizers_of(model: VisionEncoderDecoderModel, head: nn.Linear) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of layers, AdamW for all else.

    Source: Jordan et al. 2024, Muon: An Optimizer for Hidden Layers in Neural Networks.
    """
    named = [*model.named_parameters(), *head.named_parameters()]
    matrices = [p for name, p in named if ".layers." in name and p.dim() == 2]
    chosen = {id(parameter) for parameter in matrices}
    others = [parameter for _, parameter in named if id(parameter) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=1, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=1, betas=(0.9, 0.98), weight_decay=0.01, fused=True),
    ]


def save(
    run: Path,
    model: VisionEncoderDecoderModel,
    head: nn.Linear,
    optimizers: list[torch.optim.Optimizer],
    step: int,
    seconds: float,
    pool: int,
) -> None:
    state = {
        "model": model.state_dict(),
        "head": head.state_dict(),
        "optimizers": [each.state_dict() for each in optimizers],
        "step": step,
        "seconds": seconds,
        "pool": pool,
    }
    part = run / "checkpoint.part"
    torch.save(state, part)
    part.replace(run / "checkpoint.pt")
    model.save_pretrained(run / "model")


def held_out_lines(data: Path, fonts: Path) -> dict[str, tuple[list[str], Batch]]:
    """Lines of the dev sentences, of the faces held out."""
    texts, faces = Texts(data, "dev"), Faces(fonts, held_out=True)
    made = {}
    for name, draw in (("clean", clean_image), ("scanned", scanned_image)):
        rng = random.Random(f"check/{name}")
        lines = []
        for _ in range(CHECKED):
            text = texts.draw(rng, LONGEST)
            lines.append(fitted(text, draw(text, faces, rng)))
        made[name] = [line.text for line in lines], collate(lines, rng, full=True)
    return made


def report(model: VisionEncoderDecoderModel, checks: dict[str, tuple[list[str], Batch]]) -> None:
    """Character error rates on lines of the faces held out."""
    model.eval()
    for name, (texts, batch) in checks.items():
        with torch.inference_mode():
            read = read_back(model, encode(model, batch.pixels))
        rate = 100 * error_rate(texts, read)
        print(f"  {name}: CER {rate:.1f} %, e.g. {texts[0]!r} → {read[0]!r}", flush=True)
    model.train()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts"))
    parser.add_argument("--run", type=Path, required=True, help="checkpoints and the model")
    parser.add_argument("--minutes", type=float, default=60, help="of CPU time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--columns", type=int, default=1_000, help="a batch; of 8 pixels")
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="the highest learning rate")
    parser.add_argument("--every", type=float, default=1, help="minutes between saving")
    parser.add_argument("--width", type=int, default=224, help="channels")
    parser.add_argument("--encoder-layers", type=int, default=5)
    parser.add_argument("--decoder-layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
