"""Train the bundled recognizer: Whisper's architecture, 4 + 2 layers of 256, 10 s windows.

    python assets/recipes/recognition/train.py --data ../shared/data --speech DIR --run DIR \
        --minutes 90 --threads 2

Goes on from RUN/checkpoint.pt when that is there, so it can be killed at any time; the minutes
count over all runs. An auxiliary CTC head over characters on the encoder makes the attention
align (without it nothing is learned for thousands of steps); it is dropped at export. Short
windows first, full windows of several sentences later: fixed sinusoidal positions allow that.

Uses a GPU where there is one; --workers processes put the batches together for it, and --frames
makes these larger. What it trains on may come from another machine (speak.py --opus).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from batches import FRAMES_PER_BATCH, PLAIN_UNTIL, Batch, Feed, log_mel
from scoring import error_rate, read_back
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import WhisperConfig, WhisperForConditionalGeneration
from windows import (
    HELD_OUT_SPEAKERS,
    IGNORED,
    RATE,
    WINDOW,
    Composer,
    Digits,
    Tokens,
    Utterances,
)

CHARACTERS = "abcdefghijklmnopqrstuvwxyz' "
PEAK_RATE, WARM_UP = 1.2e-3, 500
# Mostly CTC until the attention aligns; windows of several sentences after that.
MOSTLY_CTC_UNTIL, SEVERAL_FROM = PLAIN_UNTIL // 2, 2_000


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
    with torch.autocast(batch.mel.device.type, torch.bfloat16):
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
        torch.tensor([c for s in spelled for c in s], device=logprobs.device),
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
    speech = sorted(arguments.speech.glob("train-*.json"))
    digits = [Digits.of_people(digits_tar, HELD_OUT_SPEAKERS, held_out=False)]
    if counting := sorted(arguments.speech.glob("digits-*.json")):
        digits.append(Digits.of_voices(Utterances(counting)))
    composer = Composer(Utterances(speech), digits, tokens, arguments.seed)
    print(f"{len(composer.items)} utterances from {len(speech)} shards", flush=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model_for(tokens).to(device)
    head = nn.Linear(256, len(CHARACTERS) + 1).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters", flush=True)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(
        parameters, lr=1, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    checkpoint, step, before = arguments.run / "checkpoint.pt", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        head.load_state_dict(state["head"])
        optimizer.load_state_dict(state["optimizer"])
        step, before = state["step"], state["seconds"]
        composer.random.seed(f"{arguments.seed}/{step}")
    feed = Feed(composer, arguments.frames, f"{arguments.seed}/{step}")
    # Forked processes share the recordings. Python 3.14 would send each of them a copy.
    ahead = {"prefetch_factor": 4, "multiprocessing_context": "fork"} if arguments.workers else {}
    batches = iter(DataLoader(feed, batch_size=None, num_workers=arguments.workers, **ahead))
    budget, began = arguments.minutes * 60, time.monotonic()
    bar = tqdm(total=round(budget), initial=round(before), unit="s", mininterval=10)
    model.train()
    while (spent := before + time.monotonic() - began) < budget:
        done = spent / budget
        rate = arguments.rate * min((step + 1) / WARM_UP, 1) * max(0.02, 1 - done)
        for group in optimizer.param_groups:
            group["lr"] = rate
        feed.tell(step, 0.0 if step < SEVERAL_FROM else 0.35 if done < 0.45 else 0.55)
        attention, ctc = losses(model, head, next(batches).to(device))
        weight = 0.9 if step < MOSTLY_CTC_UNTIL else 0.5 if done < 0.7 else 0.2
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
            mels = torch.cat([log_mel(pad(a)[None]) for a in audio]).to(model.device)
            heard = read_back(model, tokens, mels, encode)
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
    parser.add_argument("--workers", type=int, default=0, help="put batches together")
    parser.add_argument("--frames", type=int, default=FRAMES_PER_BATCH, help="a batch; of 10 ms")
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="the highest learning rate")
    parser.add_argument("--every", type=int, default=250, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
