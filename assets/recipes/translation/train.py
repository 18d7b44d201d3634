"""Train the bundled translator: Marian's architecture, 4 + 2 layers of 256, tied embeddings.

    python assets/recipes/translation/train.py --data ../shared/data --run RUN --minutes 60

Goes on from RUN/checkpoint.pt when that is there, so it can be killed at any time; the minutes
count over all runs, and the learning rate falls linearly to their end. Uses a GPU where there is
one. What diversify.py wrote into RUN is trained on as well. --start begins with the weights of a
folder in assets/models, whose subwords must be in RUN, rather than with random ones: to train it
further, or for the other direction (--reverse).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import sacrebleu
import torch
import torch.nn.functional as F
from prepare import END, PAD, pairs, pairs_in
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn
from tqdm import tqdm
from transformers import MarianConfig, MarianMTModel

PEAK_RATE, WARM_UP = 1.5e-3, 800
TOKENS_PER_BATCH = 6_000  # source and target, padding included
LONGEST = 64

Pair = tuple[list[int], list[int]]


def new_model(vocabulary: int, dropout: float) -> MarianMTModel:
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=256,
        encoder_layers=4,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        activation_function="relu",
        dropout=dropout,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
        scale_embedding=True,
        static_position_embeddings=True,
        max_position_embeddings=256,
        share_encoder_decoder_embeddings=True,
        attn_implementation="eager",  # a third faster to train on a CPU than torch's fused one
    )
    return MarianMTModel(config)


def encoded(
    read: Iterable[tuple[str, str]], subwords: SentencePieceProcessor, reverse: bool
) -> list[Pair]:
    made: list[Pair] = []
    for english, german in read:
        source, target = (german, english) if reverse else (english, german)
        made.append((subwords.encode(source) + [END], subwords.encode(target) + [END]))
    return made


def batches(data: list[Pair]) -> Iterator[list[Pair]]:
    """One pass over the data: sentences of like length together, the batches in random order."""
    order = sorted(data, key=lambda pair: len(pair[0]) + len(pair[1]) + random.random() * 4)
    made: list[list[Pair]] = [[]]
    longest = 0
    for pair in order:
        longest = max(longest, *map(len, pair))
        if made[-1] and longest * 2 * (len(made[-1]) + 1) > TOKENS_PER_BATCH:
            made.append([])
            longest = max(map(len, pair))
        made[-1].append(pair)
    random.shuffle(made)
    yield from made


def padded(rows: list[list[int]], device: torch.device) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=device)


def loss_of(model: MarianMTModel, batch: list[Pair]) -> Tensor:
    source = padded([pair[0] for pair in batch], model.device)
    target = padded([pair[1] for pair in batch], model.device)
    shifted = F.pad(target[:, :-1], (1, 0), value=PAD)
    with torch.autocast(model.device.type, torch.bfloat16):
        logits = model(
            input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=shifted
        ).logits
    return F.cross_entropy(
        logits.float().flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1
    )


@torch.inference_mode()
def bleu(model: MarianMTModel, dev: list[Pair], subwords: SentencePieceProcessor) -> float:
    """Of greedy translations, against the one reference that the dev part has."""
    model.eval()
    heard: list[str] = []
    for start in range(0, len(dev), 100):
        source = padded([pair[0] for pair in dev[start : start + 100]], model.device)
        ids = model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            max_new_tokens=LONGEST,
            num_beams=1,
            bad_words_ids=[[PAD]],
        )
        heard += [subwords.decode([i for i in row if i not in (PAD, END)]) for row in ids.tolist()]
    model.train()
    references = [subwords.decode(pair[1][:-1]) for pair in dev]
    return sacrebleu.corpus_bleu(heard, [references]).score


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    random.seed(1)
    subwords = SentencePieceProcessor(model_file=str(arguments.run / "subwords.model"))
    train = encoded(pairs(arguments.data, "train"), subwords, arguments.reverse)
    more = arguments.run / "more.tsv.gz"
    if more.exists():
        train += encoded(pairs_in(more), subwords, arguments.reverse)
    train = [pair for pair in train if max(map(len, pair)) < LONGEST]
    dev = encoded(pairs(arguments.data, "dev"), subwords, arguments.reverse)[:300]

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = new_model(subwords.get_piece_size(), arguments.dropout).to(device)
    if arguments.start:
        began_with = MarianMTModel.from_pretrained(arguments.start, dtype=torch.float32)
        model.load_state_dict(began_with.state_dict())
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    checkpoint, step, before = arguments.run / "checkpoint.pt", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, before = state["step"], state["seconds"]
        random.seed(f"1/{step}")

    def save() -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"step": step, "seconds": before + time.monotonic() - began}
        torch.save(state, checkpoint.with_suffix(".part"))
        checkpoint.with_suffix(".part").replace(checkpoint)
        model.save_pretrained(arguments.run / "model")

    began, budget, left = time.monotonic(), arguments.minutes * 60, iter(())
    bar = tqdm(total=round(budget), initial=round(before), unit="s", mininterval=5)
    model.train()
    while (spent := before + time.monotonic() - began) < budget:
        batch = next(left, None)
        if batch is None:
            left = batches(train)
            continue
        rate = arguments.rate * min((step + 1) / WARM_UP, 1) * max(0.02, 1 - spent / budget)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        bar.update(round(spent) - bar.n)
        if step % 100 == 0:
            bar.set_postfix(step=step, loss=f"{loss.item():.2f}")
        if step % arguments.every == 0:
            save()
            bar.write(f"step {step}: BLEU {bleu(model, dev, subwords):.1f} on 300 of dev")
    save()
    bar.close()
    print(f"{step} steps: BLEU {bleu(model, dev, subwords):.1f} on 300 of dev")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--run", type=Path, required=True, help="where prepare.py wrote")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="the highest learning rate")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--start", type=Path, help="a model to begin with")
    parser.add_argument("--every", type=int, default=1_000, help="steps between checkpoints")
    parser.add_argument("--reverse", action="store_true", help="German to English")
    return parser.parse_args()


if __name__ == "__main__":
    main()
