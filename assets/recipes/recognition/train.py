"""Train the bundled recogniser: Whisper's architecture, 4 + 2 layers of 256, 10 s windows.

    python assets/recipes/recognition/train.py --data ../shared/data --speech DIR --run DIR \
        --minutes 90 --threads 2

Goes on from RUN/checkpoint.pt when that is there, so it can be killed at any time; the minutes
count over all runs. An auxiliary CTC head over characters on the encoder makes the attention
align (without it nothing is learned for thousands of steps); it is dropped at export. Short
windows first, full windows of several sentences later: fixed sinusoidal positions allow that.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from augment import equalize, limit_band, mask, warp_mel
from scoring import error_rate, read_back
from tokenizers import Tokenizer
from torch import Tensor, nn
from tqdm import tqdm
from transformers import WhisperConfig, WhisperForConditionalGeneration
from whisper.audio import mel_filters
from windows import (
    HELD_OUT_SPEAKERS,
    IGNORED,
    RATE,
    WINDOW,
    Composer,
    Digits,
    Example,
    Tokens,
    Utterances,
    is_plain,
)

CHARACTERS = "abcdefghijklmnopqrstuvwxyz' "
FRAMES_PER_BATCH, FRAMES_AT_FIRST = 7_000, 5_000
PEAK_RATE, WARM_UP = 1.2e-3, 500
# Plain voices, small batches and mostly CTC until the attention aligns.
PLAIN_UNTIL, SEVERAL_FROM, MASK_FROM = 1_200, 2_000, 3_000
DISGUISE_FROM, DISGUISE_FOR, DISGUISE_MOST = 1_500, 2_500, 0.6


@dataclass
class Batch:
    mel: Tensor  # [n, 80, frames]
    inputs: Tensor  # [n, tokens]
    labels: Tensor
    texts: list[str]


def model_for(tokens: Tokens) -> WhisperForConditionalGeneration:
    config = WhisperConfig(
        vocab_size=tokens.size, d_model=256, encoder_layers=4, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=1024, decoder_ffn_dim=1024, num_mel_bins=80,
        max_source_positions=WINDOW // 320, max_target_positions=192,
        bos_token_id=tokens.eot, eos_token_id=tokens.eot, pad_token_id=tokens.eot,
        decoder_start_token_id=tokens.sot, suppress_tokens=None, begin_suppress_tokens=None,
        dropout=0.0,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    initialise(model)
    return model


@torch.no_grad()
def initialise(model: nn.Module) -> None:
    """Weights of the size that keeps activations at unit size (Glorot and Bengio 2010).

    transformers' 0.02 is meant for wider models. Here what the convolutions hear would be a tenth
    of the positions that are added to it, and CTC stood still for 900 steps; so it falls from 150.
    """
    for name, weight in model.named_parameters():
        if weight.dim() >= 2 and "embed" not in name:
            gain = 1.4 if "conv" in name else 1.0
            nn.init.normal_(weight, std=gain * weight[0].numel() ** -0.5)


def log_mel(samples: Tensor) -> Tensor:
    """openai-whisper's features of [n, samples], each row with a floor of its own."""
    window = torch.hann_window(400)
    power = torch.stft(samples, 400, 160, window=window, return_complex=True)[..., :-1].abs() ** 2
    mel = (mel_filters("cpu", 80) @ power).clamp(min=1e-10).log10()
    return (torch.maximum(mel, mel.amax(dim=(1, 2), keepdim=True) - 8) + 4) / 4


def collate(examples: list[Example], composer: Composer, step: int) -> Batch:
    r, strength, eot = composer.random, composer.strength, composer.tokens.eot
    longest = max(len(e.samples) for e in examples)
    longest = min(-(-longest // 320) * 320, WINDOW)
    samples = torch.zeros(len(examples), longest)
    for row, e in enumerate(examples):
        samples[row, : len(e.samples)] = torch.from_numpy(e.samples[:longest])
    mel = log_mel(samples)
    for row, e in enumerate(examples):
        if r.random() < 1.2 * strength:
            mel[row] = warp_mel(mel[row], r)
        if r.random() < 0.8 * strength:
            mel[row] = equalize(mel[row], r)
        if r.random() < 0.15 * strength:
            mel[row] = limit_band(mel[row], r)
        if e.pad_mel_from is not None:
            mel[row, :, e.pad_mel_from // 160 + 1 :] = 0.0
        if step > MASK_FROM:
            mel[row] = mask(mel[row], r)
    tokens = max(len(e.inputs) for e in examples)
    inputs = torch.full((len(examples), tokens), eot)
    labels = torch.full((len(examples), tokens), IGNORED)
    for row, e in enumerate(examples):
        inputs[row, : len(e.inputs)] = torch.tensor(e.inputs)
        labels[row, : len(e.labels)] = torch.tensor(e.labels)
    return Batch(mel, inputs, labels, [e.text for e in examples])


class Batches:
    """Endless batches: single sentences sorted by length, windows of several, some of nothing."""

    def __init__(self, composer: Composer) -> None:
        self._composer, self._queue = composer, []

    def next(self, step: int, share_of_full: float) -> Batch:
        c = self._composer
        c.strength = min(DISGUISE_MOST, max(0.0, (step - DISGUISE_FROM) / DISGUISE_FOR))
        if c.plain != (step < PLAIN_UNTIL):
            c.plain, self._queue = step < PLAIN_UNTIL, []
        if c.random.random() < share_of_full:
            examples = [c.several() for _ in range(FRAMES_PER_BATCH // 1000)]
            examples[0] = c.nothing()
            if c.random.random() < 0.5:
                examples[1] = c.single(None, WINDOW)
        else:
            if not self._queue:
                order = [i for i, item in enumerate(c.items) if not c.plain or is_plain(item)]
                c.random.shuffle(order)
                # Neighbours in length, in random order: sorted within pools of 1,500.
                pools = [order[i : i + 1500] for i in range(0, len(order), 1500)]
                for pool in pools:
                    pool.sort(key=lambda i: len(c.items[i][0]))
                    room = FRAMES_AT_FIRST if c.plain else FRAMES_PER_BATCH
                    self._queue += _cut(pool, [len(c.items[i][0]) for i in pool], room)
                c.random.shuffle(self._queue)
            examples = [c.single(i) for i in self._queue.pop()]
            if c.random.random() < 0.3 and not c.plain:
                examples[0] = c.single(None)
            if c.random.random() < 0.1 and len(examples) > 1 and not c.plain:
                examples[-1] = c.nothing()
                examples[-1].samples = examples[-1].samples[: len(examples[0].samples)]
        return collate(examples, c, step)


def _cut(pool: list[int], lengths: list[int], room: int) -> list[list[int]]:
    batches, current = [], []
    for index, length in zip(pool, lengths, strict=True):
        frames = length // 160 + 80
        if current and (len(current) + 1) * frames > room:
            batches.append(current)
            current = []
        current.append(index)
    return [*batches, current]


def encode(model: WhisperForConditionalGeneration, mel: Tensor) -> Tensor:
    """The encoder on windows shorter than its config insists on."""
    encoder = model.model.encoder
    x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel)))).permute(0, 2, 1)
    x = x + encoder.embed_positions.weight[: x.shape[1]]
    for layer in encoder.layers:
        out = layer(x, None)
        x = out[0] if isinstance(out, tuple) else out
    return encoder.layer_norm(x)


def losses(
    model: WhisperForConditionalGeneration, head: nn.Linear, batch: Batch
) -> tuple[Tensor, Tensor]:
    """Attention (cross-entropy over tokens) and CTC (over characters)."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = encode(model, batch.mel)
        states = model.model.decoder(input_ids=batch.inputs, encoder_hidden_states=hidden)
        logits = model.proj_out(states.last_hidden_state)
    attention = F.cross_entropy(
        logits.float().flatten(0, 1), batch.labels.flatten(),
        ignore_index=IGNORED, label_smoothing=0.1,
    )  # fmt: skip
    spelled = [[CHARACTERS.index(c) for c in t.lower() if c in CHARACTERS] for t in batch.texts]
    logprobs = head(hidden.float()).log_softmax(-1).transpose(0, 1)
    ctc = F.ctc_loss(
        logprobs,
        torch.tensor([c for s in spelled for c in s]),
        torch.full((len(spelled),), len(logprobs)),
        torch.tensor([len(s) for s in spelled]),
        blank=len(CHARACTERS),
        zero_infinity=True,
    )
    return attention, ctc


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    arguments.run.mkdir(parents=True, exist_ok=True)
    tokens = Tokens(Tokenizer.from_file(str(arguments.vocabulary / "tokenizer.json")))
    digits_tar = arguments.data / "digits/recordings.tar"
    speech = sorted(p for p in arguments.speech.glob("train-*.npy"))
    composer = Composer(
        Utterances(speech), Digits(digits_tar, HELD_OUT_SPEAKERS, held_out=False), tokens,
        arguments.seed,
    )  # fmt: skip
    print(f"{len(composer.items)} utterances from {len(speech)} shards", flush=True)
    model, head = model_for(tokens), nn.Linear(256, len(CHARACTERS) + 1)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters", flush=True)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(
        parameters, lr=1, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    checkpoint, step, before = arguments.run / "checkpoint.pt", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        head.load_state_dict(state["head"])
        optimizer.load_state_dict(state["optimizer"])
        step, before = state["step"], state["seconds"]
        composer.random.seed(f"{arguments.seed}/{step}")
    budget, began, batches = arguments.minutes * 60, time.monotonic(), Batches(composer)
    bar = tqdm(total=round(budget), initial=round(before), unit="s", mininterval=10)
    model.train()
    while (spent := before + time.monotonic() - began) < budget:
        done = spent / budget
        rate = PEAK_RATE * min((step + 1) / WARM_UP, 1) * max(0.02, 1 - done)
        for group in optimizer.param_groups:
            group["lr"] = rate
        full = 0.0 if step < SEVERAL_FROM else 0.35 if done < 0.45 else 0.55
        attention, ctc = losses(model, head, batches.next(step, full))
        weight = 0.9 if step < PLAIN_UNTIL // 2 else 0.5 if done < 0.7 else 0.2
        optimizer.zero_grad(set_to_none=True)
        ((1 - weight) * attention + weight * ctc).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        bar.n = round(spent)
        if step % 50 == 0:
            bar.write(f"step {step} attention {attention:.3f} ctc {ctc:.3f} {spent / 60:.1f} min")
        if step % arguments.every == 0:
            state = {
                "model": model.state_dict(), "head": head.state_dict(),
                "optimizer": optimizer.state_dict(), "step": step,
                "seconds": before + time.monotonic() - began,
            }  # fmt: skip
            torch.save(state, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)
            model.save_pretrained(arguments.run / "model")
            report(model, tokens, arguments.speech, bar)
    model.save_pretrained(arguments.run / "model")


def report(model: WhisperForConditionalGeneration, tokens: Tokens, speech: Path, bar: tqdm) -> None:
    """Word error rates on the small sets that lie beside the training shards."""
    model.eval()
    for name in ("dev", "rms"):
        if (speech / f"{name}.npy").exists():
            items = Utterances([speech / f"{name}.npy"]).items[:64]
            audio = [samples.astype("float32") / 32768 for samples, _, _ in items]
            heard = read_back(model, tokens, [log_mel(pad(a)[None])[0] for a in audio], encode)
            wer = error_rate([text for _, text, _ in items], heard)
            bar.write(f"  {name}: WER {100 * wer:.1f} %, e.g. {items[0][1]!r} → {heard[0]!r}")
    model.train()


def pad(samples: object) -> Tensor:
    """A tenth of a second before, silence after, to the full window."""
    audio = torch.as_tensor(samples)[: WINDOW - RATE // 5]
    return F.pad(audio, (RATE // 10, WINDOW - RATE // 10 - len(audio)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds digits/recordings.tar")
    parser.add_argument("--speech", type=Path, required=True, help="what speak.py wrote")
    parser.add_argument("--vocabulary", type=Path, required=True, help="what vocabulary.py wrote")
    parser.add_argument("--run", type=Path, required=True, help="checkpoints and the model")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=250, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
