"""The models of a cluster as the driver uses them: like a Transcriber, and like a Translator."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edgeapp.cluster.node_worker import Described, Failure, ModelChoice, NodeWorker
from edgeapp.console import print_note
from edgeapp.settings import Settings
from pipelines import OptionError
from pipelines.errors import DeviceLost

if TYPE_CHECKING:
    from pipelines import TranscribeOptions, TranslateOptions, Translation
    from pipelines.asr import AudioSource, Checkpoint, TranscriptEvent

__all__ = ["Cluster"]

_START_S = 300.0  # for a machine to load the model
_CALLS = 4  # at the same time on a machine: a recording, and translations of sentences
_SENTENCES = 32  # that are translated in one call at most


class Cluster:
    """One worker on each machine of a Ray cluster. Several threads may use it. A context manager.

    A machine that dies loses its task: the task goes on elsewhere, after its last checkpoint.

    Args:
        address: Of the cluster (host:port, ray://host:port); "local": this machine alone.
        settings: The compute type holds for all machines; each uses all CPUs that it offers.
        choice: The model, which each machine must have.

    Raises:
        OptionError: ray is not installed, or there is no such cluster.
        EdgeError: A machine cannot load the model.
        DeviceLost: No machine works.
    """

    def __init__(self, address: str, settings: Settings, choice: ModelChoice) -> None:
        self._ray = _ray()
        self._connect(address)
        self._idle: queue.Queue[Any] = queue.Queue()
        self._workers: tuple[Any, ...] = ()  # that are not lost
        self._lock, self._turns = threading.Lock(), count()
        self._closed = threading.Event()
        try:
            self._start(settings, choice)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """The number of machines that work."""
        return len(self._workers)

    @property
    def model(self) -> Any:
        """As Transcriber.model or Translator.model: its folder's name, and its compute type."""
        model = self._described
        return SimpleNamespace(folder=Path(model.folder), compute_type=model.compute_type)

    @property
    def capabilities(self) -> Any:
        """As Transcriber.capabilities: the model's name, its languages, and times of words."""
        model = self._described
        return SimpleNamespace(
            name=model.name,
            word_timestamps=model.word_timestamps,
            multilingual=model.multilingual,
        )

    @property
    def window_s(self) -> float:
        """As Transcriber.window_s."""
        return self._described.window_s

    def close(self) -> None:
        """End the workers. Waiting calls of other threads raise KeyboardInterrupt."""
        self._closed.set()
        self._ray.shutdown()

    def stream(
        self,
        audio: AudioSource,
        options: TranscribeOptions,
        *,
        resume_from: Checkpoint | None = None,
        checkpoints: bool = True,
    ) -> Iterator[TranscriptEvent]:
        """As Transcriber.stream, without provisional text.

        A file goes to one machine. Sound that is decoded here goes to all machines, in pieces.

        Raises:
            EdgeError: As Transcriber.stream.
            DeviceLost: No machine is left.
        """
        if isinstance(audio, str | os.PathLike):
            return self._stream_file(Path(audio), options, resume_from)
        from edgeapp.cluster.recording_pieces import stream_pieces

        return stream_pieces(self, audio, options, resume_from)

    def _stream_file(
        self, path: Path, options: TranscribeOptions, resume_from: Checkpoint | None
    ) -> Iterator[TranscriptEvent]:
        from pipelines import AudioError, TranscriptionInfo
        from pipelines.asr import Checkpoint

        try:
            content = self._ray.put(path.read_bytes())
        except OSError as error:
            raise AudioError(f"{path} cannot be read: {error.strerror}") from error
        informed = False
        while True:
            with self._lease() as worker:
                groups = worker.stream.options(num_returns="streaming").remote(
                    str(path), content, options, resume_from
                )
                try:
                    for reference in groups:
                        for event in _checked(self._ray.get(reference)):
                            if isinstance(event, TranscriptionInfo):
                                if informed:
                                    continue
                                informed = True
                            elif isinstance(event, Checkpoint):
                                resume_from = event
                            yield event
                    return
                except self._ray.exceptions.RayError as error:
                    self._lose(worker, error, str(path))

    def translator(self, name: str | None, spoken: str, target: str) -> RemoteTranslator:
        """A translator for a language pair.

        Raises:
            EdgeError: As ModelPool.translator.
            DeviceLost: No machine is left.
        """
        pair = (name, spoken, target)
        folder, target_codes = self.call("translator", *pair, beside=True)
        return RemoteTranslator(self, pair, Path(folder), target_codes)

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Any:
        """Call a method of NodeWorker on a machine that works.

        Args:
            method: Its name.
            arguments: Of the method.
            beside: It is short: a machine that is at work does it beside that.

        Raises:
            EdgeError: As the method.
            DeviceLost: No machine is left.
        """
        while True:
            with self._any() if beside else self._lease() as worker:
                try:
                    result = self._ray.get(getattr(worker, method).remote(*arguments))
                except self._ray.exceptions.RayError as error:
                    self._lose(worker, error, method)
                else:
                    return _checked(result)

    def _connect(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        try:
            if address == "local":
                self._ray.init(
                    address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet
                )
            else:
                self._ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise OptionError(f"--cluster {address}: {first}") from error

    def _start(self, settings: Settings, choice: ModelChoice) -> None:
        """Start a worker on each machine; those that do not answer are left out."""
        from dataclasses import replace

        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(NodeWorker)
        calls: dict[Any, tuple[Any, str]] = {}
        for node in self._ray.nodes():
            threads = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
            if not threads:
                continue
            worker = remote.options(
                num_cpus=threads,
                max_concurrency=_CALLS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote(replace(settings, threads=threads), choice)
            calls[worker.load.remote()] = (worker, str(node["NodeManagerAddress"]))
        ready, late = self._ray.wait(list(calls), num_returns=len(calls), timeout=_START_S)
        described = set[Described]()
        for call in ready:
            worker, address = calls[call]
            try:
                described.add(_checked(self._ray.get(call)))
            except self._ray.exceptions.RayError as error:
                print_note(f"{address} is left out: {_first_line(error)}")
                continue
            self._workers += (worker,)
            self._idle.put(worker)
        for call in late:
            print_note(f"{calls[call][1]} is left out: it did not answer in {_START_S:g} s")
        if not described:
            raise DeviceLost("no machine of the cluster has free CPUs and answers")
        if len(described) > 1:
            raise OptionError(
                "the machines chose different models or compute types: name them with -m and "
                "--compute-type ("
                + ", ".join(sorted(f"{m.name} {m.folder} {m.compute_type}" for m in described))
                + ")"
            )
        self._described = described.pop()

    @contextmanager
    def _lease(self) -> Iterator[Any]:
        """A worker that nothing else has leased."""
        while True:
            self._check()
            try:
                worker = self._idle.get(timeout=0.5)
            except queue.Empty:
                continue
            if worker in self._workers:
                break
        try:
            yield worker
        finally:
            self._idle.put(worker)

    @contextmanager
    def _any(self) -> Iterator[Any]:
        """A worker, in turn; others may have leased it."""
        workers = self._check()
        yield workers[next(self._turns) % len(workers)]

    def _check(self) -> tuple[Any, ...]:
        """The workers. Raises KeyboardInterrupt after `close`, DeviceLost if none is left."""
        if self._closed.is_set():
            raise KeyboardInterrupt
        if not (workers := self._workers):
            raise DeviceLost("no machine of the cluster is left")
        return workers

    def _lose(self, worker: Any, error: Exception, what: str) -> None:
        """A machine is gone; the work goes on elsewhere."""
        if self._closed.is_set():
            raise KeyboardInterrupt
        if isinstance(error, self._ray.exceptions.RayTaskError):
            raise error  # a defect of the program, not of the machine
        with self._lock:
            known = worker in self._workers
            self._workers = tuple(each for each in self._workers if each is not worker)
        if known:  # by another call, otherwise
            print_note(f"{what}: its machine is lost ({_first_line(error)}); {self.size} left")


class RemoteTranslator:
    """A translator on the machines of a cluster, like a Translator.

    Args:
        cluster: The machines.
        pair: Name of the model or None, spoken language, target language.
        folder: Of the model.
        target_codes: Languages that it translates into, where there are several.
    """

    def __init__(
        self,
        cluster: Cluster,
        pair: tuple[str | None, str, str],
        folder: Path,
        target_codes: tuple[str, ...],
    ) -> None:
        self._cluster, self._pair = cluster, pair
        self.model = SimpleNamespace(folder=folder)
        self.target_codes = target_codes

    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions
    ) -> Iterator[Translation]:
        """As Translator.translate_lines. Lines up to a None, or some, are translated in one call.

        Raises:
            EdgeError: As Translator.translate_lines.
            DeviceLost: No machine is left.
        """
        group: list[str] = []
        for line in chain(lines, (None,)):
            if line is not None:
                group.append(line)
            if group and (line is None or len(group) == _SENTENCES):
                yield from self._cluster.call(
                    "translate_lines", tuple(group), options, self._pair, beside=True
                )
                group = []


def _checked(result: Any) -> Any:
    """A result of a worker. Raises the error that it stands for."""
    if isinstance(result, Failure):
        raise result.as_error()
    return result


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0] or type(error).__name__


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise OptionError(
            "--cluster needs ray: install edgeapp with its extra, as edgeapp[cluster]"
        ) from None
    return ray
