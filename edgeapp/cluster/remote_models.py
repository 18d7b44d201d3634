"""The models of a cluster as the driver uses them: like a Transcriber, and like a Translator."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import requires
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edgeapp.cluster.node_worker import Described, Failure, ModelChoice, NodeWorker
from edgeapp.console import print_note
from edgeapp.settings import Settings
from pipelines import EdgeError, InputError, OptionError
from pipelines.errors import DeviceLost

if TYPE_CHECKING:
    from pipelines import TranscribeOptions, TranslateOptions, Translation
    from pipelines.asr import AudioSource, Checkpoint, TranscriptEvent

__all__ = ["Cluster"]

_START_S = 300.0  # for a machine to load the model
_CALLS = 4  # at the same time on a machine: a recording, and translations of sentences
_SENTENCES = 32  # that are translated in one call at most
_DEATHS = 3  # of workers in a row, with no task done between, after which their machine is left
# Deaths of workers after which a task is to blame. One that runs beside others may have met the
# deaths that another one caused, once less.
_KILLS, _KILLS_BESIDE = 2, 3


class _Machine:
    """A machine of the cluster.

    Args:
        node: Its id.
        address: Its address, for messages.
        start: Starts a worker there.

    Attributes:
        worker: The worker; a new one after its death.
        deaths: Workers that have died since the last task was done.
        lock: Held while a new worker starts.
    """

    def __init__(self, node: str, address: str, start: Callable[[], Any]) -> None:
        self.node, self.address, self.start = node, address, start
        self.worker: Any = start()
        self.deaths = 0
        self.lock = threading.Lock()


class Cluster:
    """One worker on each machine of a Ray cluster. Several threads may use it. A context manager.

    A machine that dies loses its task: the task goes on elsewhere, after its last checkpoint. A
    worker that dies on a machine that lives is started again. A task that ends two workers fails.

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
        self._idle: queue.Queue[_Machine] = queue.Queue()
        self._machines: tuple[_Machine, ...] = ()  # that are not lost
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
        return len(self._machines)

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
            InputError: It has ended two workers.
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
        informed, killed = False, list[_Machine]()
        while True:
            with self._lease(killed) as machine:
                worker = machine.worker
                try:
                    groups = worker.stream.options(num_returns="streaming").remote(
                        str(path), content, options, resume_from
                    )
                    for reference in groups:
                        for event in _checked(self._ray.get(reference)):
                            if isinstance(event, TranscriptionInfo):
                                if informed:
                                    continue
                                informed = True
                            elif isinstance(event, Checkpoint):
                                resume_from = event
                            yield event
                    machine.deaths = 0
                    return
                except self._ray.exceptions.RayError as error:
                    if self._replace(machine, worker, error):
                        self._blame(killed, machine, error, str(path), _KILLS)

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
            InputError: It has ended two workers, or three of those that it shared with others.
            DeviceLost: No machine is left.
        """
        killed: list[_Machine] = []
        while True:
            with self._any() if beside else self._lease(killed) as machine:
                worker = machine.worker
                try:
                    result = self._ray.get(getattr(worker, method).remote(*arguments))
                except self._ray.exceptions.RayError as error:
                    if self._replace(machine, worker, error):
                        most = _KILLS_BESIDE if beside else _KILLS
                        self._blame(killed, machine, error, "this input", most)
                else:
                    if not beside:
                        machine.deaths = 0
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
        calls: dict[Any, _Machine] = {}
        for node in self._ray.nodes():
            threads = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
            if not threads:
                continue
            start = self._starter(node["NodeID"], replace(settings, threads=threads), choice)
            machine = _Machine(node["NodeID"], str(node["NodeManagerAddress"]), start)
            calls[machine.worker.load.remote()] = machine
        ready, late = self._ray.wait(list(calls), num_returns=len(calls), timeout=_START_S)
        described = set[Described]()
        for call in ready:
            machine = calls[call]
            try:
                described.add(_checked(self._ray.get(call)))
            except self._ray.exceptions.RayError as error:
                print_note(f"{machine.address} is left out: {_first_line(error)}")
                continue
            self._machines += (machine,)
            self._idle.put(machine)
        for call in late:
            print_note(f"{calls[call].address} is left out: it did not answer in {_START_S:g} s")
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

    def _starter(self, node: str, settings: Settings, choice: ModelChoice) -> Callable[[], Any]:
        """A function that starts a worker on a machine, with all its CPUs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(NodeWorker).options(
            num_cpus=settings.threads,
            max_concurrency=_CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        return lambda: remote.remote(settings, choice)

    @contextmanager
    def _lease(self, killed: Sequence[_Machine]) -> Iterator[_Machine]:
        """A machine that nothing else has leased.

        Args:
            killed: Whose workers the task has ended: if there are others, it gets one of those.
        """
        while True:
            machines = self._check()
            try:
                machine = self._idle.get(timeout=0.5)
            except queue.Empty:
                continue
            if machine in killed and not set(machines) <= set(killed):
                self._idle.put(machine)
                self._closed.wait(0.1)
            elif machine in machines:
                break
        try:
            yield machine
        finally:
            self._idle.put(machine)

    @contextmanager
    def _any(self) -> Iterator[_Machine]:
        """A machine, in turn; others may have leased it."""
        machines = self._check()
        yield machines[next(self._turns) % len(machines)]

    def _check(self) -> tuple[_Machine, ...]:
        """The machines. Raises KeyboardInterrupt after `close`, DeviceLost if none is left."""
        if self._closed.is_set():
            raise KeyboardInterrupt
        if not (machines := self._machines):
            raise DeviceLost("no machine of the cluster is left")
        return machines

    def _replace(self, machine: _Machine, worker: Any, error: Exception) -> bool:
        """Start a new worker for one that has died, or give its machine up; the work goes on.

        Args:
            machine: The machine.
            worker: The worker that has died.
            error: What its death was.

        Returns:
            Whether the worker died and not its machine: the task may be the cause.
        """
        if self._closed.is_set():
            raise KeyboardInterrupt
        if isinstance(error, self._ray.exceptions.RayTaskError):
            raise error  # a defect of the program, not of the machine
        with machine.lock:
            lives = any(n["NodeID"] == machine.node and n["Alive"] for n in self._ray.nodes())
            if machine.worker is not worker or machine not in self._machines:
                return lives  # another call has seen the same death
            machine.deaths += 1
            self._ray.kill(worker)  # one that only lost its connection would keep the CPUs
            if lives and machine.deaths < _DEATHS:
                why = self._restart(machine)
            else:
                why = f"{_DEATHS} workers have died in a row" if lives else _first_line(error)
            if why is None:
                print_note(f"{machine.address}: its worker died, and runs again")
                return True
            with self._lock:
                self._machines = tuple(each for each in self._machines if each is not machine)
            print_note(f"{machine.address}: this machine is lost ({why}); {self.size} left")
        return lives

    def _restart(self, machine: _Machine) -> str | None:
        """Start a new worker on a machine. Returns why it is of no use, None if it works."""
        machine.worker = machine.start()
        try:
            described = _checked(self._ray.get(machine.worker.load.remote(), timeout=_START_S))
        except (self._ray.exceptions.RayError, EdgeError) as error:
            self._ray.kill(machine.worker)
            return _first_line(error)
        return None if described == self._described else "its model is another one now"

    def _blame(
        self, killed: list[_Machine], machine: _Machine, error: Exception, what: str, most: int
    ) -> None:
        """Add a machine to those whose workers a task has ended.

        Raises:
            InputError: They are `most`: the task fails, and their deaths are no fault of theirs.
        """
        killed.append(machine)
        if len(killed) < most:
            return
        for each in killed:
            with each.lock:
                each.deaths = max(0, each.deaths - 1)
        raise InputError(
            f"{what}: the workers of the cluster die of it ({_first_line(error)}); try it alone, "
            "without --cluster"
        ) from error


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
            InputError: The lines have ended three workers.
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
        needed = next(each for each in requires("edgeapp") or () if each.startswith("ray"))
        raise OptionError(
            f'--cluster needs Ray: pip install "{needed.partition(";")[0].strip()}"'
        ) from None
    return ray
