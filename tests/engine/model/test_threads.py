"""What is computed does not depend on the number of threads, nor on what is encoded with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pipelines.engine import Engine, GenerationOptions, Request
from pipelines.engine.model.lm_head import logprobs_of
from pipelines.engine.model.threads import ComputeThreads
from pipelines.errors import RequestError
from tests.engine.conftest import Folders, token_sources

# oneDNN divides a product by the number of threads from about these sizes on.
_WIDTH, _FRAMES = 512, 3_000


@pytest.fixture(scope="module")
def wide_whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer as wide and long as those of Whisper base."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=600, num_mel_bins=8, d_model=_WIDTH, max_target_positions=16,
        encoder_layers=1, encoder_attention_heads=8, encoder_ffn_dim=4 * _WIDTH,
        decoder_layers=1, decoder_attention_heads=8, decoder_ffn_dim=32,
        pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=1,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("wide")
    WhisperForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("compute_type", ["int8", "bfloat16", "float32"])
def test_a_window_is_encoded_to_the_same_bits(wide_whisper: Path, compute_type: str) -> None:
    generator = torch.Generator().manual_seed(1)
    windows = [torch.randn(8, frames, generator=generator) for frames in (*[_FRAMES] * 3, 200)]
    results = []
    for threads in (1, 2, 3):
        model = Engine(device="cpu", compute_type=compute_type, threads=threads).load(wide_whisper)
        alone = [model.encode([window])[0] for window in windows]
        together = model.encode(windows[:3])
        results.append([_bytes(*each.keys, *each.values) for each in (*alone, *together)])
        assert results[-1][:3] == results[-1][4:], f"{threads} threads: alone and together"
    assert results[0] == results[1] == results[2]


@pytest.mark.slow
@pytest.mark.parametrize("compute_type", ["int8", "bfloat16"])
def test_tokens_and_their_probabilities_are_the_same(
    checkpoints: Folders, compute_type: str
) -> None:
    results = []
    for threads in (1, 2, 3):
        engine = Engine(device="cpu", compute_type=compute_type, threads=threads)
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        options = GenerationOptions(max_new_tokens=6, logprobs=True)
        start = (model.architecture.start_id,)
        streams = [
            model.stream(Request(source, start, options))
            for source in model.encode(token_sources(model, [3, 9, 20]))
        ]
        done = [stream.result() for stream in streams]
        results.append([(result.tokens, result.logprobs) for result in done])
    assert results[0] == results[1] == results[2]


def test_jobs_run_on_one_thread_each_and_leave_the_number_as_it_was() -> None:
    threads = ComputeThreads(2)
    torch.set_num_threads(2)
    assert threads.run([torch.get_num_threads] * 3) == [1, 1, 1]
    assert threads.run([torch.get_num_threads]) == [1]
    assert torch.get_num_threads() == 2


@pytest.mark.slow
def test_a_window_that_is_encoded_ahead_is_the_same(wide_whisper: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    windows = [torch.randn(8, frames, generator=generator) for frames in (_FRAMES, 400)]
    with Engine(device="cpu", compute_type="int8", threads=2) as engine:
        model = engine.load(wide_whisper)
        futures = [model.encode_ahead(window) for window in windows]
        if futures[0] is None:
            pytest.skip("no compiled kernels here")
        ahead = [future.result() for future in futures if future is not None]
        here = model.encode(windows)
    assert [_bytes(*each.keys, *each.values) for each in ahead] == [
        _bytes(*each.keys, *each.values) for each in here
    ]


def test_one_thread_is_left_to_the_background() -> None:
    threads, go_on = ComputeThreads(3), threading.Event()
    threads.use()
    assert torch.get_num_threads() == 3
    job = threads.start(lambda: go_on.wait(60) and torch.get_num_threads())
    threads.use()
    assert torch.get_num_threads() == 2
    go_on.set()
    assert job.result() == 1
    threads.use()
    assert torch.get_num_threads() == 3
    # New threads do not begin with the one of the background.
    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(torch.get_num_threads).result() == 3


def test_a_job_that_is_cancelled_leaves_the_others_their_thread() -> None:
    threads, go_on = ComputeThreads(3), threading.Event()
    running = threads.start(lambda: go_on.wait(60))
    assert threads.start(lambda: True).cancel()
    threads.use()
    assert torch.get_num_threads() == 2
    go_on.set()
    assert running.result()
    threads.use()
    assert torch.get_num_threads() == 3


@pytest.mark.slow
def test_an_unloaded_model_encodes_nothing_more(wide_whisper: Path) -> None:
    with Engine(device="cpu", compute_type="int8", threads=2) as engine:
        model = engine.load(wide_whisper)
        futures = [model.encode_ahead(torch.zeros(8, _FRAMES)) for _ in range(8)]
        if futures[0] is None:
            pytest.skip("no compiled kernels here")
        engine.unload(model)
        assert all(future is not None and future.done() for future in futures)


def test_nothing_is_encoded_ahead_of_more_urgent_requests(wide_whisper: Path) -> None:
    with Engine(device="cpu", compute_type="int8", threads=2) as engine:
        model = engine.load(wide_whisper)
        source = model.encode([torch.zeros(8, 200)])[0]
        urgent = model.stream(Request(source, (1,), GenerationOptions(4), priority=1))
        assert model.encode_ahead(torch.zeros(8, 200), priority=2) is None
        assert len(urgent.result().tokens) <= 4


def test_log_probabilities_do_not_depend_on_the_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        logits = 4 * torch.randn(1, 51_865, generator=generator)
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(logprobs_of(torch.tensor([7]), logits))
        assert found[0].equal(found[1])
        assert found[0].equal(found[2])
        assert found[0] == pytest.approx(logits.log_softmax(-1)[:, 7], abs=1e-4)


def test_texts_and_single_threads_encode_nothing_ahead(
    wide_whisper: Path, checkpoints: Folders
) -> None:
    with Engine(device="cpu", compute_type="int8", threads=1) as engine:
        assert engine.load(wide_whisper).encode_ahead(torch.zeros(8, 100)) is None
    with Engine(device="cpu", compute_type="float32", threads=2) as engine:
        assert engine.load(wide_whisper).encode_ahead(torch.zeros(8, 100)) is None
        with pytest.raises(RequestError, match="mels"):
            engine.load(wide_whisper).encode_ahead(torch.zeros(80, 100))
    with Engine(device="cpu", compute_type="int8", threads=2) as engine:
        assert engine.load(checkpoints("marian:opus-mt-en-de")).encode_ahead([5, 0]) is None


def _bytes(*tensors: Tensor) -> list[bytes]:
    return [each.contiguous().view(torch.uint8).numpy().tobytes() for each in tensors]
