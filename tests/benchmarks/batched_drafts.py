"""Throughput of speculative decoding with a draft model, for a batch of eight and of one.

    .venv/bin/python -m tests.benchmarks.batched_drafts

The model is the bundled Whisper model with extra decoder layers whose outputs are zero: the same
probabilities, several times as slow. The draft model is the bundled model with noise on its decoder
weights, on the same encoder: the tokens are real words, and the noise sets the acceptance rate.
Compared: no drafter, a draft pass per request, and draft passes batched over all requests.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pipelines.asr.audio.decode import load_audio
from pipelines.asr.audio.features import FileFeatures
from pipelines.engine import Engine, GenerationOptions, ModelDrafter, Request, Result
from pipelines.engine.decoding.request import DraftSession, Proposal
from pipelines.hub import assets_folder, bundled_folder

LAYERS = 12
ROWS = 8
RUNS = 7
TOKENS = 48
DISTURBANCE = 0.12  # standard deviation of the noise, relative to that of the matrix


class Alone:
    """Wraps a model drafter so that draft passes are not batched over requests."""

    def __init__(self, drafter: ModelDrafter) -> None:
        self._drafter = drafter

    def check(self, vocab_size: int) -> None:
        self._drafter.check(vocab_size)

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        return _Hidden(self._drafter.start(prompt, options))


class _Hidden(DraftSession):
    def __init__(self, inside: DraftSession) -> None:
        self._inside = inside

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        return self._inside.propose(sequence, most)

    def on_verified(self, proposed: int, accepted: int) -> None:
        self._inside.on_verified(proposed, accepted)


def deepened(source: Path, folder: Path) -> Path:
    """A copy of a Whisper folder with LAYERS decoder layers; the added ones output zero."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    own, config["decoder_layers"] = config["decoder_layers"], LAYERS
    (folder / "config.json").write_text(json.dumps(config))
    state = load_file(folder / "model.safetensors")
    first = "model.decoder.layers.0."
    for name in [name for name in state if name.startswith(first)]:
        ends = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
        silent = any(f".{end}." in name for end in ends)
        for layer in range(own, LAYERS):
            copy = torch.zeros_like(state[name]) if silent else state[name].clone()
            state[name.replace(first, f"model.decoder.layers.{layer}.")] = copy
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def disturbed(source: Path, folder: Path) -> Path:
    """A copy of a Whisper folder with noise on its decoder weights."""
    shutil.copytree(source, folder)
    state, luck = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(0)
    for name, tensor in state.items():
        if ".decoder.layers." in name and tensor.ndim == 2:
            noise = torch.randn(tensor.shape, generator=luck) * tensor.float().std() * DISTURBANCE
            state[name] = (tensor.float() + noise).to(tensor.dtype)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def requests_of(engine: Engine, whole: Path, small: Path) -> list[Request]:
    """One request with a drafter for each of ROWS windows of the bundled talk."""
    model, drafter = engine.load(whole), engine.load(small)
    architecture = model.architecture
    frames = 2 * architecture.max_source_positions
    samples = load_audio(assets_folder() / "samples" / "talk.flac")
    features = FileFeatures(samples, architecture.num_mel_bins, frames)
    ids = json.loads((whole / "tokenizer.json").read_text())["added_tokens"]
    named = {token["content"]: token["id"] for token in ids}
    prompt = (architecture.start_id, named["<|notimestamps|>"])
    options = GenerationOptions(max_new_tokens=TOKENS)  # every row as long: no eos
    last = max(1, len(samples) // 160 - frames)
    windows = [features.window(i * last // ROWS)[0] for i in range(ROWS)]
    pairs = model.encode_sharing(windows, drafter)
    return [
        Request(encoded, prompt, options, drafter=ModelDrafter(drafter, draft))
        for encoded, draft in pairs
    ]


def timed(engine: Engine, ways: Sequence[list[Request]]) -> list[tuple[float, list[Result]]]:
    """For each variant its best tokens/s of RUNS alternating runs, and its results."""
    results = [engine.generate(requests) for requests in ways]
    speeds: list[list[float]] = [[] for _ in ways]
    for _ in range(RUNS):
        for way, requests in enumerate(ways):
            began = time.perf_counter()
            results[way] = engine.generate(requests)
            seconds = time.perf_counter() - began
            speeds[way].append(sum(len(result.tokens) for result in results[way]) / seconds)
    return [(max(each), out) for each, out in zip(speeds, results, strict=True)]


def main() -> None:
    compute_type = sys.argv[1] if len(sys.argv) > 1 else "float32"
    with tempfile.TemporaryDirectory() as place, Engine("cpu", compute_type) as engine:
        source = bundled_folder("demo")
        whole = deepened(source, Path(place) / "deep")
        small = disturbed(source, Path(place) / "small")
        requests = requests_of(engine, whole, small)
        print(f"{LAYERS} layers drafted for by 2, {TOKENS} tokens a row, {compute_type}, "
              f"{engine.threads} threads; best of {RUNS}")  # fmt: skip
        print(f"{'':24}{'tokens/s':>10}{'times':>8}{'accepted':>14}")
        for rows in (1, ROWS):
            batch = requests[:rows]
            ways = {
                "no drafter": [replace(request, drafter=None) for request in batch],
                "a drafter each": [replace(request, drafter=_alone(request)) for request in batch],
                "drafted together": batch,
            }
            measured = timed(engine, list(ways.values()))
            plain_speed, plain = measured[0]
            for name, (speed, results) in zip(ways, measured, strict=True):
                same = [r.tokens for r in results] == [r.tokens for r in plain]
                assert same or compute_type != "float32", "speculation changed the tokens"
                drafted = sum(result.drafted for result in results)
                kept = sum(result.accepted for result in results)
                share = f"{100 * kept / drafted:.0f} %" if drafted else "–"
                print(f"{rows} row{'s' * (rows > 1)}, {name:16}".ljust(24)
                      + f"{speed:10.0f}{speed / plain_speed:8.2f}{share:>14}")  # fmt: skip


def _alone(request: Request) -> Alone:
    assert isinstance(request.drafter, ModelDrafter)
    return Alone(request.drafter)


if __name__ == "__main__":
    main()
