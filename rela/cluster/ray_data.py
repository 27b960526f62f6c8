"""Ray Data as the engine: actors that hold a model, shards streamed to them, and results back as they are finished.

Ray Data hands out as many shards as its actors can take, and gives those of an actor that died to another one. So a
shard may be computed twice, and what takes the results must allow for it, as `write_shards` does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from rela.cluster.inputs import FileRange, Row, Shard, read_shard
from rela.cluster.manifest import Manifest, open_manifest
from rela.errors import RunFailed
from rela.files import checksum, replacing, synchronise
from rela.progress import Progress

Work = Callable[[Shard, list[Row]], bytes]
"""What a job does with the rows of a shard: the bytes they become."""


class Job(Protocol):
    """What is done to every shard. It is sent to the workers, so it holds settings and no model."""

    def describe(self) -> dict[str, Any]:
        """What decides the result, for the manifest."""
        ...

    def start(self) -> Work:
        """Load the model; called once by each worker."""
        ...


@dataclass(frozen=True)
class Result:
    """What came of a shard."""

    shard: int
    rows: int
    data: bytes
    worker: str
    """Host and process."""


@dataclass(frozen=True)
class Workers:
    """How many workers there are to be, and what each needs."""

    count: int | None = None
    """One for each GPU or, if there is none, each CPU of the cluster, unless told."""
    device: str = "auto"


def map_shards(job: Job, shards: Iterable[Shard], workers: Workers) -> Iterator[Result]:
    """The results of a job's shards as they are finished, in any order; a shard may come twice."""
    ray = connect()
    items = [{"shard": json.dumps(asdict(shard))} for shard in shards]
    if not items:
        return
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if workers.device != "cpu" else 0
    if workers.device.startswith("cuda") and not gpus:
        raise ValueError(f"device is {workers.device!r}, and the cluster has no GPU; wanted auto or cpu")
    count = workers.count or gpus or int(resources.get("CPU", 1))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    # A shard a task: what a worker that dies takes with it is one shard.
    dataset = ray.data.from_items(items, override_num_blocks=min(len(items), 10_000))
    done = dataset.map_batches(
        ShardWorker,
        fn_constructor_args=(job,),
        batch_size=1,
        num_cpus=1,
        num_gpus=1 if gpus else 0,
        compute=ray.data.ActorPoolStrategy(size=min(count, len(items))),
    )
    for row in done.iter_rows():
        for message in json.loads(row["warnings"]):
            warnings.warn(message, stacklevel=2)
        if row["error"]:
            raise RunFailed(row["error"])
        yield Result(row["shard"], row["rows"], row["data"], row["worker"])


def connect() -> Any:
    """Ray, connected to the cluster of RAY_ADDRESS or, if that is not set, to one on this machine."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ImportError("--on ray needs Ray: pip install 'rela-attention[ray]'") from None
    if not ray.is_initialized():
        local: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
        ray.init(logging_level=logging.ERROR, log_to_driver=False, **local)
    return ray


class ShardWorker:
    """An actor of Ray Data: loads the model when it starts, then takes shards one by one."""

    def __init__(self, job: Job) -> None:
        self.work = job.start()
        self.name = f"{socket.gethostname()}:{os.getpid()}"

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """A batch has one shard."""
        fields = json.loads(batch["shard"][0])
        shard = Shard(**{**fields, "ranges": tuple(FileRange(**part) for part in fields["ranges"])})
        data, error = b"", ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                data = self.work(shard, read_shard(shard))
            except (ValueError, OSError, RunFailed) as problem:  # what a user can put right; all else is a traceback
                error = str(problem) or type(problem).__name__
        messages = [str(item.message) for item in caught if issubclass(item.category, UserWarning)]
        return {
            "shard": [shard.number],
            "rows": [shard.rows],
            "data": [data],
            "worker": [self.name],
            "error": [error],
            "warnings": [json.dumps(messages)],
        }


@dataclass(frozen=True)
class WriteShard:
    """A job that also writes what it makes of each shard to a file, and gives its name and checksum instead."""

    job: Job
    folder: str
    ending: str

    def describe(self) -> dict[str, Any]:
        return self.job.describe()

    def start(self) -> Work:
        work, folder = self.job.start(), Path(self.folder)

        def write(shard: Shard, rows: list[Row]) -> bytes:
            data = work(shard, rows)
            name = f"part-{shard.number:06d}.{self.ending}"
            with replacing(folder / name) as partial:
                partial.write_bytes(data)
                synchronise(partial)  # its line of the manifest must not reach the disk before it
            return json.dumps({"file": name, "sha256": hashlib.sha256(data).hexdigest()}).encode()

        return write


def write_shards(
    job: Job,
    corpus: dict[str, Any],
    shards: list[Shard],
    folder: Path,
    ending: str,
    workers: Workers,
    progress: Progress | None = None,
) -> Path:
    """The folder with a file for each shard and a manifest; shards that are in the manifest are not done again.

    `corpus` tells this corpus from another. The files in the order of their names are the output that one process
    writes.
    """
    folder = folder.absolute()
    rows = sum(shard.rows for shard in shards)
    what = {**job.describe(), **corpus, "rows": rows}
    with open_manifest(folder, what) as manifest:
        left = [shard for shard in shards if not is_done(manifest, shard)]
        for result in map_shards(WriteShard(job, str(folder), ending), left, workers):
            manifest.add({"shard": result.shard, "rows": result.rows, **json.loads(result.data)})
            if progress is not None:
                progress("rows", sum(entry["rows"] for entry in manifest.done.values()), rows)
        if missing := [shard.number for shard in shards if shard.number not in manifest.done]:
            raise RunFailed(f"shards {missing[:5]} never came; the same command does them")
        manifest.finish()
    return folder


def is_done(manifest: Manifest, shard: Shard) -> bool:
    """Whether a shard is in the manifest; its file must then be there, as it was written."""
    entry = manifest.done.get(shard.number)
    if entry is None:
        return False
    path = manifest.folder / entry["file"]
    if not path.is_file():
        raise ValueError(f"{path} is gone; remove {manifest.folder} to begin again")
    if checksum(path) != entry.get("sha256"):
        raise ValueError(f"{path} is not as it was written; remove {manifest.folder} to begin again")
    return True
