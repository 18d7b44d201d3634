"""The continuous batch: joining, leaving, cancelling, many threads, and errors that stay local."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipelines.engine import (
    AllowOnlyTokens,
    BadWords,
    EncodedSource,
    Engine,
    FinishReason,
    GenerationOptions,
    LoadedModel,
    Request,
    Stream,
    SuppressTokens,
)
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.decoding.request_state import RequestQueue
from pipelines.engine.decoding.sampling.logit_filters import BoundFilter
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.model.threads import ComputeThreads
from pipelines.errors import EngineError, NumericalError
from tests.engine.conftest import Folders, mel_source, token_sources


class Jobs:
    """Requests of many lengths, with what each gives when it runs alone."""

    def __init__(self, engine: Engine, model: LoadedModel) -> None:
        pad = model.architecture.pad_id
        encoded_sources = model.encode(token_sources(model, [3, 8, 5, 21, 13, 2]))
        self.requests = [
            Request(
                encoded, (pad, *range(20, 20 + i % 3)), GenerationOptions(max_new_tokens=3 + 4 * i)
            )
            for i, encoded in enumerate(encoded_sources)
        ]
        self.alone = [engine.generate([request])[0].tokens for request in self.requests]

    def on(self, encoded_sources: Sequence[EncodedSource]) -> list[Request]:
        """The first of them, on what another model has encoded."""
        return [
            Request(encoded, request.prompt, request.options)
            for encoded, request in zip(encoded_sources, self.requests, strict=False)
        ]


@pytest.fixture(scope="module")
def jobs(engine: Engine, marian: LoadedModel) -> Jobs:
    return Jobs(engine, marian)


@pytest.mark.slow
def test_finished_slots_are_refilled(checkpoints: Folders, jobs: Jobs) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1, max_batch=2) as small:
        model = small.load(checkpoints("marian:opus-mt-en-de"))
        encoded_sources = model.encode(token_sources(model, [3, 8, 5, 21, 13, 2]))
        requests = jobs.on(encoded_sources)
        assert [result.tokens for result in small.generate(requests)] == jobs.alone


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_any_order_of_joining_reading_and_cancelling(
    data: st.DataObject, engine: Engine, jobs: Jobs
) -> None:
    """A request that is not cancelled gives the same as alone, a cancelled one a prefix of it."""
    streams: dict[int, tuple[int, Stream, list[int]]] = {}
    cancelled: set[int] = set()
    for number in range(data.draw(st.integers(4, 25))):
        action = data.draw(st.sampled_from(["join", "read", "read", "cancel"]))
        if action == "join" or not streams:
            which = data.draw(st.integers(0, len(jobs.requests) - 1))
            streams[number] = (which, engine.stream(jobs.requests[which]), [])
            continue
        key = data.draw(st.sampled_from(sorted(streams)))
        _, stream, read = streams[key]
        if action == "cancel":
            stream.cancel()
            cancelled.add(key)
        else:
            read.extend(token for event in [next(stream, None)] if event for token in event.tokens)
    for key, (which, stream, read) in streams.items():
        reasons = []
        for event in stream:
            read.extend(event.tokens)
            reasons.append(event.reason)
        result = stream.result()
        assert list(result.tokens) == read
        if result.reason is FinishReason.CANCELLED:
            assert key in cancelled
            assert list(jobs.alone[which][: len(read)]) == read
        else:
            assert result.tokens == jobs.alone[which]


def test_events_come_one_token_at_a_time(engine: Engine, jobs: Jobs) -> None:
    events = list(engine.stream(jobs.requests[3]))
    assert [event.tokens for event in events] == [(token,) for token in jobs.alone[3]]
    assert [event.final for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].reason is FinishReason.LENGTH


def test_a_cancelled_neighbor_changes_nothing(engine: Engine, jobs: Jobs) -> None:
    streams = [engine.stream(request) for request in jobs.requests]
    next(streams[4])
    streams[2].cancel()
    streams[5].cancel()
    results = [stream.result() for stream in streams]
    assert results[2].reason is results[5].reason is FinishReason.CANCELLED
    for i in (0, 1, 3, 4):
        assert results[i].tokens == jobs.alone[i]


def test_an_abandoned_stream_leaves_the_batch(
    engine: Engine, marian: LoadedModel, jobs: Jobs
) -> None:
    with engine.stream(jobs.requests[5]) as stream:
        next(stream)
    del stream
    engine.generate([jobs.requests[0]])
    assert len(marian._batch) == 0


@pytest.mark.slow
def test_from_many_threads(engine: Engine, jobs: Jobs) -> None:
    answers: list[list[tuple[int, ...]]] = [[] for _ in range(8)]

    def work(thread: int) -> None:
        for turn in range(4):
            request = jobs.requests[(thread + turn) % len(jobs.requests)]
            answers[thread].append(engine.generate([request])[0].tokens)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    for i, answer in enumerate(answers):
        assert answer == [jobs.alone[(i + turn) % len(jobs.alone)] for turn in range(4)]


def test_cancelling_from_another_thread_ends_the_wait(engine: Engine, jobs: Jobs) -> None:
    stream = engine.stream(jobs.requests[5])
    next(stream)
    canceller = threading.Thread(target=stream.cancel)
    canceller.start()
    canceller.join()
    assert stream.result().reason is FinishReason.CANCELLED


def test_urgent_requests_get_the_next_free_slot(checkpoints: Folders) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1, max_batch=1) as one:
        model = one.load(checkpoints("marian:opus-mt-en-de"))
        encoded = model.encode(token_sources(model, [4]))[0]
        pad, options = model.architecture.pad_id, GenerationOptions(max_new_tokens=5)
        batch = [one.stream(Request(encoded, (pad,), options, priority=3)) for _ in "ab"]
        next(batch[0])
        live = one.stream(Request(encoded, (pad,), options, priority=0))
        live.result()
        assert batch[1]._state.generated == []


def test_a_job_waits_for_one_job_of_another_thread() -> None:
    """Where one caller encodes pass after pass, the passes of others come in between."""
    scheduler = Scheduler(ComputeThreads(), recover=lambda batch: False)
    ran: list[str] = []
    live = threading.Thread(target=lambda: scheduler.run(lambda: ran.append("live")))

    def first_pass() -> None:
        live.start()
        deadline = time.monotonic() + 60
        while not scheduler._jobs and time.monotonic() < deadline:
            time.sleep(0.001)
        ran.append("pass 1")

    scheduler.run(first_pass)
    for number in range(2, 200):
        scheduler.run(lambda number=number: ran.append(f"pass {number}"))  # type: ignore[misc]
    live.join(timeout=60)
    assert ran[:3] == ["pass 1", "live", "pass 2"]


def test_two_models_share_one_engine(
    engine: Engine, marian: LoadedModel, whisper: LoadedModel, jobs: Jobs
) -> None:
    start = whisper.architecture.start_id
    encoded = whisper.encode([mel_source(whisper)])[0]
    audio = Request(encoded, (start,), GenerationOptions(max_new_tokens=12))
    alone = engine.generate([audio])[0].tokens
    results = engine.generate([jobs.requests[1], audio, jobs.requests[2]])
    assert [r.tokens for r in results] == [jobs.alone[1], alone, jobs.alone[2]]


class Broken:
    """A caller's own logit filter that raises at the third token."""

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> object:
        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            if len(generated) == 2:
                raise ZeroDivisionError("oops")

        return bound


def test_a_failing_filter_fails_only_its_own_request(engine: Engine, jobs: Jobs) -> None:
    request = jobs.requests[3]
    options = GenerationOptions(max_new_tokens=9, logit_filters=(Broken(),))  # type: ignore[arg-type]
    bad = engine.stream(Request(request.encoded, request.prompt, options))
    good = engine.stream(request)
    assert good.result().tokens == jobs.alone[3]
    with pytest.raises(EngineError, match="oops"):
        bad.result()


def test_filters_that_leave_no_token_are_an_error(engine: Engine, jobs: Jobs) -> None:
    request = jobs.requests[0]
    logit_filters = (AllowOnlyTokens((5,)), SuppressTokens((5,)))
    for temperature in (0.0, 1.0):
        options = GenerationOptions(
            max_new_tokens=4, logit_filters=logit_filters, temperature=temperature
        )
        with pytest.raises(EngineError, match="leave no token"):
            engine.generate([Request(request.encoded, request.prompt, options)])


def test_an_interrupted_step_changes_no_result(
    engine: Engine, marian: LoadedModel, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [engine.stream(request) for request in jobs.requests]
    next(streams[5])
    decode, calls = marian._backend.decode, 0

    def interrupted(*args: object) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return decode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(marian._backend, "decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        streams[5].result()
    assert [stream.result().tokens for stream in streams] == jobs.alone


@pytest.mark.slow
def test_out_of_gpu_memory_goes_on_with_the_cpu(
    checkpoints: Folders, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated on the CPU: the plan claims a GPU, the third step raises out of memory."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        encoded_sources = model.encode(token_sources(model, [3, 8, 5, 21, 13, 2]))
        requests = jobs.on(encoded_sources)
        former = _out_of_memory(model, "decode", monkeypatch, after=5)
        with pytest.warns(RuntimeWarning, match="GPU out of memory.*CPU"):
            results = engine.generate(requests)
        assert [result.tokens for result in results] == jobs.alone
        assert model._backend is not former


def test_a_request_that_comes_while_the_cpu_takes_over_goes_on_there(
    checkpoints: Folders, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated on the CPU, as above."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        requests = jobs.on(model.encode(token_sources(model, [3, 8, 5, 21, 13, 2])))
        _out_of_memory(model, "decode", monkeypatch, after=1)
        adopt, late = NativeBackend.adopt, list[Stream]()

        def add_a_request(self: NativeBackend, former: NativeBackend) -> None:
            late.append(engine.stream(requests[1]))
            adopt(self, former)

        monkeypatch.setattr(NativeBackend, "adopt", add_a_request)
        with pytest.warns(RuntimeWarning, match="GPU out of memory.*CPU"):
            (first,) = engine.generate(requests[:1])
        assert [first.tokens, late[0].result().tokens] == jobs.alone[:2]


@pytest.mark.slow
def test_out_of_gpu_memory_while_encoding_goes_on_with_the_cpu(
    checkpoints: Folders, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated on the CPU, as above."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        former = _out_of_memory(model, "encode", monkeypatch)
        with pytest.warns(RuntimeWarning, match="GPU out of memory.*CPU"):
            encoded_sources = model.encode(token_sources(model, [3, 8, 5, 21, 13, 2]))
        assert model._backend is not former
        requests = jobs.on(encoded_sources)
        assert [result.tokens for result in engine.generate(requests)] == jobs.alone


def test_when_the_cpu_cannot_take_over_all_requests_fail(
    checkpoints: Folders, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        encoded_sources = model.encode(token_sources(model, [3, 8]))
        streams = [
            engine.stream(Request(encoded, jobs.requests[0].prompt, jobs.requests[5].options))
            for encoded in encoded_sources
        ]
        _out_of_memory(model, "decode", monkeypatch)

        def gone(*args: object) -> None:
            raise OSError("the folder is gone")

        monkeypatch.setattr(engine, "_load_backend", gone)
        message = "the CPU cannot take over: the folder is gone"
        with pytest.warns(RuntimeWarning), pytest.raises(EngineError, match=message):
            streams[0].result()
        with pytest.raises(EngineError, match=message):
            streams[1].result()


def _out_of_memory(
    model: LoadedModel, where: str, monkeypatch: pytest.MonkeyPatch, after: int = 0
) -> object:
    """Make a model claim to be on a GPU that is out of memory after so many calls."""
    backend = model._backend
    does, calls = getattr(backend, where), 0

    def out_of_memory(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls <= after:
            return does(*args)
        monkeypatch.setattr(
            type(backend.plan), "on_gpu", property(lambda plan: plan is backend.plan)
        )
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(backend, where, out_of_memory)
    return backend


def test_an_error_while_requests_are_admitted_fails_them_all(
    checkpoints: Folders, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        encoded_sources = model.encode(token_sources(model, [3, 8, 5]))
        cross = model._batch._cross
        store, calls = cross.store, 0

        def full(*args: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise MemoryError("no room")
            store(*args)

        monkeypatch.setattr(cross, "store", full)
        streams = [engine.stream(request) for request in jobs.on(encoded_sources)]
        for stream in streams:
            with pytest.raises(EngineError, match="no room"):
                stream.result()
        requests = jobs.on(encoded_sources)
        assert [result.tokens for result in engine.generate(requests)] == jobs.alone[:3]


def test_nan_of_a_damaged_source_does_not_spread_through_the_cache(
    checkpoints: Folders, jobs: Jobs
) -> None:
    """A mask hides numbers, but not NaN."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        encoded_sources = model.encode(token_sources(model, [3, 8, 5, 21, 13, 2]))
        (damaged,) = model.encode(token_sources(model, [20]))
        with torch.inference_mode():
            for values in damaged.values:
                values.fill_(torch.nan)
        requests = jobs.on(encoded_sources)
        bad = Request(damaged, jobs.requests[0].prompt, jobs.requests[0].options)
        streams = [engine.stream(request) for request in (bad, *requests[:3])]
        with pytest.raises(EngineError, match="computed NaN"):
            streams[0].result()
        assert [stream.result().tokens for stream in streams[1:]] == jobs.alone[:3]
        # Now shorter sources than the damaged one beside a longer one, in the slots it had.
        assert [result.tokens for result in engine.generate(requests)] == jobs.alone


class Fill:
    """Sets all logits to one value, from a number of tokens on."""

    def __init__(self, value: float, after: int) -> None:
        self.value, self.after = value, after

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        def fill(logits: Tensor, generated: Sequence[int]) -> None:
            if len(generated) >= self.after:
                logits.fill_(self.value)

        return fill


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 3])
def test_neighbors_of_a_damaged_request_compute_the_same_bits(
    jobs: Jobs, engine: Engine, after: int
) -> None:
    """As beside a request that ends at the same step for another reason."""
    wanted = [
        Request(r.encoded, r.prompt, replace(r.options, logprobs=True)) for r in jobs.requests
    ]
    found = []
    for value, error, why in [
        (-torch.inf, EngineError, f"no token to choose after {after}"),
        (torch.nan, NumericalError, f"computed NaN after {after} tokens.*float32"),
    ]:
        options = GenerationOptions(30, logit_filters=(Fill(value, after),), logprobs=True)
        bad = Request(jobs.requests[3].encoded, jobs.requests[3].prompt, options)
        streams = [engine.stream(request) for request in (*wanted[:2], bad, *wanted[2:])]
        with pytest.raises(EngineError, match=why) as raised:
            streams.pop(2).result()
        assert type(raised.value) is error
        found.append([(r.tokens, r.logprobs) for r in (s.result() for s in streams)])
    assert found[0] == found[1]
    assert [tokens for tokens, _ in found[0]] == jobs.alone


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(8),
        GenerationOptions(8, logprobs=True),
        GenerationOptions(8, beam_size=3),
        GenerationOptions(8, beam_size=3, stopping="openai", logprobs=True),
        GenerationOptions(8, temperature=1.0, seed=1),
        GenerationOptions(8, temperature=1.0, seed=1, best_of=3),
    ],
    ids=["greedy", "with logprobs", "beams", "openai's beams", "sampled", "best of"],
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_every_sampling_method_reports_nan(
    jobs: Jobs, marian: LoadedModel, engine: Engine, options: GenerationOptions, value: float
) -> None:
    (damaged,) = marian.encode(token_sources(marian, [20]))
    with torch.inference_mode():
        for values in damaged.values:
            values.fill_(value)
    streams = [engine.stream(Request(damaged, jobs.requests[0].prompt, options))]
    streams += [engine.stream(request) for request in jobs.requests]
    with pytest.raises(NumericalError, match="computed NaN"):
        streams[0].result()
    assert [stream.result().tokens for stream in streams[1:]] == jobs.alone


def test_a_sample_without_possible_tokens_fails_only_its_own_request(
    jobs: Jobs, engine: Engine
) -> None:
    a, b, c = 40, 41, 42
    dead = GenerationOptions(
        max_new_tokens=6,
        temperature=1.0,
        best_of=4,
        seed=1,
        logit_filters=(AllowOnlyTokens((a, b, c)), BadWords(((a, a), (a, b), (a, c)))),
    )
    first = jobs.requests[0]
    streams = [
        engine.stream(Request(first.encoded, first.prompt, dead)),
        engine.stream(jobs.requests[3]),
    ]
    with pytest.raises(EngineError, match="the logit filters leave no token"):
        streams[0].result()
    assert streams[1].result().tokens == jobs.alone[3]


def test_a_request_that_expires_during_pop_stopped_is_popped_next_time() -> None:
    class Late:
        """A request whose timeout passes at the `after`th read of `should_stop`."""

        request = SimpleNamespace(priority=3)

        def __init__(self, after: int) -> None:
            self._left = after

        @property
        def should_stop(self) -> bool:
            self._left -= 1
            return self._left < 0

    rows: list[Any] = [Late(0), Late(1)]
    waiting = RequestQueue()
    for row in rows:
        waiting.add(row)
    assert waiting.pop_stopped() == rows[:1]
    assert waiting.pop_stopped() == rows[1:]


@pytest.mark.parametrize("interrupted", ["job", "step", "parts"])
def test_an_interrupt_before_the_computation_leaves_the_engine_usable(
    checkpoints: Folders, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    """Ctrl-C between taking a turn and computing, for each way to take one."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        (request,) = jobs.on(model.encode(token_sources(model, [3])))
        stream = engine.stream(request)
        uses = {
            "job": lambda: model.encode(token_sources(model, [4])),
            "step": stream.result,
            "parts": lambda: engine._scheduler.give_way(request.priority + 1),
        }

        def ctrl_c(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as context:
            context.setattr(Scheduler, "_compute", ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                uses[interrupted]()
        others: list[tuple[int, ...]] = []
        thread = threading.Thread(target=lambda: others.append(stream.result().tokens))
        thread.start()
        thread.join(60)
        assert others == jobs.alone[:1]


def test_an_interrupted_wait_for_a_turn_holds_up_no_other_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = Scheduler(ComputeThreads(), recover=lambda batch: False)

    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Scheduler, "_wait_for", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            scheduler.run(lambda: None)
    assert scheduler.run(lambda: 7) == 7


def test_a_lost_notification_holds_up_a_caller_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C may come after a computation, before those that wait for it are notified."""
    scheduler = Scheduler(ComputeThreads(), recover=lambda batch: False)
    monkeypatch.setattr(Scheduler, "_notify", lambda self: None)
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait()

    thread = threading.Thread(target=lambda: scheduler.run(first))
    thread.start()
    begun.wait()
    threading.Timer(0.05, go_on.set).start()
    assert scheduler.run(lambda: 7) == 7
    thread.join()


def test_the_load_of_a_batch_can_be_read_while_it_changes(
    engine: Engine, marian: LoadedModel, jobs: Jobs
) -> None:
    """Requests that end between two looks at them: what `has_urgent` and /metrics read."""
    batch = marian._batch

    class Ending(list[Any]):
        """A list of requests that another thread empties as soon as it is seen not to be empty."""

        def __bool__(self) -> bool:
            had = len(self) > 0
            self.clear()
            return had

        def __len__(self) -> int:
            return super().__len__()

    with engine.stream(jobs.requests[5]) as stream:
        next(stream)
        state = batch._running[0]
        batch._running = Ending([state])
        assert batch.reserved_bytes > 0
        batch._running = [state]
        assert batch.priority == jobs.requests[5].priority
    engine.generate(jobs.requests[:1])
    assert batch.priority is None
    assert not engine._scheduler.has_urgent(100)


def test_each_caller_gets_an_error_of_its_own(checkpoints: Folders, jobs: Jobs) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        streams = [
            engine.stream(request)
            for request in jobs.on(model.encode(token_sources(model, [3, 8])))
        ]
        model._batch._cross.store = _full  # type: ignore[method-assign,union-attr]
        errors: list[EngineError] = []
        for stream in (*streams, streams[0]):
            with pytest.raises(EngineError, match="no room") as raised:
                stream.result()
            errors.append(raised.value)
    assert len({id(error) for error in errors}) == 3
    assert [error.__context__ for error in errors] == [None] * 3
    assert {repr(error.__cause__) for error in errors} == {"MemoryError('no room')"}


def _full(*_: object) -> None:
    raise MemoryError("no room")
