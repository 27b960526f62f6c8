"""On a real Ray cluster of two workers: the output of one process, also when a worker is killed in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from rela.alignment.choose import AlignmentChoice, save_choice
from rela.alignment.joint import save_joint
from rela.cli import main
from rela.cluster.inputs import read_shard, shards_of
from rela.cluster.manifest import MANIFEST, open_manifest
from rela.cluster.ray_data import Work, WriteShard, is_done
from rela.commands.ray_jobs import AlignRows, CheckRows, ScoreRows, TranslateRows
from rela.data.corpus import CorpusError
from rela.filtering.score_corpus import score_block
from tests.tiny_models import BACK, tiny_folder, tiny_joint, toy_pairs

# Ray's own, in its own use of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
PAIRS = toy_pairs(150)


def run(*words: object) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert end.value.code == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A model, and a corpus as two texts, as JSON lines and as Parquet."""
    folder = tmp_path_factory.mktemp("ray")
    tiny_folder(folder / "model")
    sides = {"source": [pair[0] for pair in PAIRS], "target": [pair[1] for pair in PAIRS]}
    for name, lines in sides.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [json.dumps(dict(zip(sides, pair, strict=True))) for pair in PAIRS]
    (folder / "pairs.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table(sides), folder / "pairs.parquet", row_group_size=40)
    return folder


@pytest.fixture(scope="module")
def cluster():
    """A cluster on this machine, of two CPUs and a small object store."""
    import ray

    ray.init(
        num_cpus=2,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
    )
    yield ray
    ray.shutdown()


def joined(folder: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("part-*")))


def shard_numbers(folder: Path) -> list[int]:
    """As the manifest has them, in the order in which they were finished."""
    entries = [json.loads(line) for line in (folder / MANIFEST).read_text(encoding="utf-8").splitlines()]
    return [entry["shard"] for entry in entries if "shard" in entry]


@pytest.mark.campaign
def test_translations_are_those_of_one_process_from_text_json_and_parquet(place, cluster, tmp_path):
    model = place / "model"
    run("translate", model, place / "source", "--out", tmp_path / "one", "--scores", "--device", "cpu")
    wanted = (tmp_path / "one").read_text(encoding="utf-8")
    for name in ("source", "pairs.jsonl", "pairs.parquet"):
        out = tmp_path / name
        command = ["translate", model, place / name, "--out", out, "--scores", "--device", "cpu"]
        run(*command, "--on", "ray", "--workers", 2, "--shard-lines", 37)
        assert joined(out) == wanted
        assert sorted(shard_numbers(out)) == [0, 1, 2, 3, 4]


@pytest.mark.campaign
def test_links_are_those_of_one_process(place, cluster, tmp_path):
    texts = ["align", place / "model", place / "source", place / "target", "--device", "cpu"]
    run(*texts, "--out", tmp_path / "one")
    run(*texts, "--out", tmp_path / "many", "--on", "ray", "--shard-lines", 40)
    assert joined(tmp_path / "many") == (tmp_path / "one").read_text(encoding="utf-8")


@pytest.mark.campaign
def test_checks_are_those_of_one_process_from_text_and_parquet(place, cluster, tmp_path):
    """Two models, both formats; lines are those of the corpus, and titles come once."""
    tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    command = ["check", place / "model", "--reverse", tmp_path / "back", "--device", "cpu"]
    texts, table = [place / "source", place / "target"], [place / "pairs.parquet"] * 2
    for format, files in (("tsv", texts), ("jsonl", table)):
        run(*command, *texts, "--format", format, "--out", tmp_path / f"one.{format}")
        many = tmp_path / f"many-{format}"
        run(*command, *files, "--format", format, "--out", many, "--on", "ray", "--shard-lines", 37)
        assert joined(many) == (tmp_path / f"one.{format}").read_text(encoding="utf-8")
        assert {path.suffix for path in many.glob("part-*")} == {f".{format}"}


@pytest.mark.campaign
def test_a_filtered_corpus_is_that_of_one_process(place, cluster, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    command = ["filter", place / "model", "--keep", "0.5", "--text", "--device", "cpu"]
    run(*command, place / "source", place / "target", "--out", tmp_path / "one" / "scores.tsv")
    for name in ("source", "pairs.parquet"):
        texts = [place / name, place / (name if name != "source" else "target")]
        out = tmp_path / "many" / f"{name}.tsv"
        run(*command, *texts, "--out", out, "--on", "ray", "--workers", 1)
        assert out.read_bytes() == (tmp_path / "one" / "scores.tsv").read_bytes()
        kept = out.with_suffix(".kept.source").read_bytes()
        assert kept == (tmp_path / "one" / "scores.kept.source").read_bytes()


def worker_processes() -> list[int]:
    """The actors of Ray Data on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::MapWorker"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "sides"), [("translate", ["source"]), ("check", ["source", "target"])])
def test_a_killed_worker_loses_nothing_and_brings_nothing_twice(place, cluster, tmp_path, name, sides):
    """And a manifest that lost its end is filled up, without doing again what it still names."""
    out = tmp_path / "out"
    command = [name, place / "model", *(place / side for side in sides), "--device", "cpu"]
    run(*command, "--out", tmp_path / "one")
    wanted = (tmp_path / "one").read_text(encoding="utf-8")
    killed: list[int] = []
    over = threading.Event()

    def kill_one() -> None:
        while not killed and not over.is_set():
            if list(out.glob("part-*")) and (workers := worker_processes()):
                os.kill(workers[0], signal.SIGKILL)
                killed.append(workers[0])
            time.sleep(0.01)

    watcher = threading.Thread(target=kill_one)
    watcher.start()
    command += ["--out", out, "--on", "ray"]
    try:
        run(*command, "--workers", 2, "--shard-lines", 5)
    finally:
        over.set()
        watcher.join()
    assert killed
    assert joined(out) == wanted
    assert sorted(shard_numbers(out)) == list(range(30))

    manifest = (out / MANIFEST).read_bytes().splitlines(keepends=True)
    (out / MANIFEST).write_bytes(b"".join(manifest[:28]) + b'{"shard": 1')
    named = set(shard_numbers_of(manifest[:28]))
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    run(*command, "--workers", 1, "--shard-lines", 5)
    changed = {name for name, time_ns in before.items() if (out / name).stat().st_mtime_ns != time_ns}
    ending = "tsv" if name == "check" else "txt"
    assert changed == {f"part-{number:06d}.{ending}" for number in set(range(30)) - named}
    assert joined(out) == wanted


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "sides"), [("translate", ["source"]), ("align", ["source", "target"])])
def test_a_killed_driver_loses_nothing_and_its_workers_end(place, tmp_path, name, sides):
    """The command itself is killed again and again: as it starts, and after some more shards each time."""
    command = [name, place / "model", *(place / side for side in sides), "--device", "cpu"]
    run(*command, "--out", tmp_path / "one")
    wanted = (tmp_path / "one").read_text(encoding="utf-8")
    out, mark = tmp_path / "out", f"killed-{os.getpid()}-{name}"
    line = [sys.executable, "-m", "rela", *command, "--out", out, "--on", "ray", "--workers", 2, "--shard-lines", 1]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "RELA_TEST_MARK": mark}
    done: set[int] = set()
    for more in (0, 2, 30):
        driver = subprocess.Popen([str(word) for word in line], env=environment, stdout=subprocess.DEVNULL)
        while driver.poll() is None and len(list(out.glob("part-*"))) < len(done) + more:
            time.sleep(0.01)
        if not more:
            time.sleep(1.0)
        driver.kill()
        assert driver.wait() == -signal.SIGKILL, "it ended before it was killed"
        manifest = (out / MANIFEST).read_bytes().split(b"\n")[:-1] if (out / MANIFEST).exists() else []
        assert done <= set(shard_numbers_of(manifest))
        done = set(shard_numbers_of(manifest))
        deadline = time.monotonic() + 60
        while workers_with(mark) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not workers_with(mark), "workers end with the driver"
    before = {number: (out / f"part-{number:06d}.txt").stat().st_mtime_ns for number in done}
    subprocess.run([str(word) for word in line], env=environment, stdout=subprocess.DEVNULL, check=True)
    assert joined(out) == wanted
    assert sorted(shard_numbers(out)) == list(range(150))
    assert {number: (out / f"part-{number:06d}.txt").stat().st_mtime_ns for number in done} == before
    assert {path.name for path in out.iterdir()} == {MANIFEST, *(f"part-{n:06d}.txt" for n in range(150))}


def workers_with(mark: str) -> list[int]:
    """The actors of Ray Data with this text in their environment; agents of Ray may outlive them by a minute."""
    found = []
    for process in worker_processes():
        with contextlib.suppress(OSError):  # it has ended
            if mark.encode() in Path(f"/proc/{process}/environ").read_bytes():
                found.append(process)
    return found


def shard_numbers_of(lines: list[bytes]) -> list[int]:
    return [entry["shard"] for entry in map(json.loads, lines) if "shard" in entry]


@pytest.mark.filterwarnings("ignore:line 3 has 400 subwords")
def test_a_worker_s_bytes_are_those_of_the_command(place, tmp_path):
    """What an actor does, without Ray: translations and warnings with the line of the corpus, and scores."""
    long = tmp_path / "long"
    long.write_text("a dog .\n\n" + "x " * 200 + "\n", encoding="utf-8")
    run("translate", place / "model", long, "--format", "jsonl", "--out", tmp_path / "one", "--device", "cpu")
    work = TranslateRows([str(place / "model")], {}, 1, False, False, "jsonl", "cpu").start()
    rows = [(b"a dog .",), (b"",), (b"x " * 200,)]
    found = b""
    for shard in shards_of([long], 2):
        if shard.number == 0:
            found += work(shard, rows[:2])
        else:
            with pytest.warns(UserWarning, match="line 3 has"):
                found += work(shard, rows[2:])
    assert found.decode() == (tmp_path / "one").read_text(encoding="utf-8")

    from rela.decoding.translate import Translator

    pairs = [(source.encode(), target.encode()) for source, target in PAIRS[:7]]
    score = ScoreRows(str(place / "model"), None, False, "cpu").start()
    scores = score_block(Translator.load(place / "model", "cpu"), pairs)
    assert score(shards_of([place / "source", place / "target"], 7)[0], pairs) == scores.tobytes()


@pytest.mark.parametrize("format", ["tsv", "jsonl"])
def test_a_worker_checks_as_the_command_does(place, tmp_path, format):
    """Without Ray: two shards are the output of the command, with an empty pair in the second one."""
    texts = [tmp_path / "source", tmp_path / "target"]
    for path, side in zip(texts, zip(*PAIRS[:7], ("", ""), *PAIRS[7:9], strict=True), strict=True):
        path.write_text("\n".join(side) + "\n", encoding="utf-8")
    run("check", place / "model", *texts, "--format", format, "--out", tmp_path / "one", "--device", "cpu")
    job = CheckRows(str(place / "model"), None, None, format, "cpu")
    work = job.start()
    found = [work(shard, read_shard(shard)) for shard in shards_of(texts, 6)]
    assert b"".join(found).decode() == (tmp_path / "one").read_text(encoding="utf-8")
    assert {"detector", "links"} <= {*job.describe()}
    shard = shards_of(texts, 6)[1]
    with pytest.raises(CorpusError, match=r"target, line 8: "):
        work(shard, [(b"a", b"b"), (b"a", b"\xff")])


def test_links_of_another_aligner_or_of_other_heads_are_another_job(tmp_path):
    """Shards that are done are kept only for the same job: one output must not have links of two aligners."""
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    folders = str(tmp_path / "there"), str(tmp_path / "back")
    align = AlignRows(*folders, (None, None), True, None, False, "cpu")
    translate = TranslateRows([folders[0]], {}, 1, True, False, "text", "cpu")
    save_joint(tiny_joint(there, back))
    save_choice(tmp_path / "there", AlignmentChoice(0, (0,), True))
    before = align.describe(), translate.describe()
    assert before == (align.describe(), translate.describe())
    save_joint(tiny_joint(there, back, seed=4))
    assert align.describe() != before[0]
    save_choice(tmp_path / "there", AlignmentChoice(0, (1,), True))
    assert translate.describe() != before[1]
    without = TranslateRows([folders[0]], {}, 1, False, False, "text", "cpu")
    assert "links" not in without.describe()


def test_a_shard_is_done_if_its_file_is_as_it_was_written(place, tmp_path):
    (shard,) = shards_of([place / "source"], 150)
    written = json.loads(WriteShard(Copied(), str(tmp_path), "txt").start()(shard, [(b"a",)]))
    with open_manifest(tmp_path / "shards", {}) as manifest:
        (tmp_path / written["file"]).rename(path := tmp_path / "shards" / written["file"])
        assert not is_done(manifest, shard)
        manifest.add({"shard": 0, "rows": 1, **written})
        assert is_done(manifest, shard)
        path.write_bytes(b"")
        with pytest.raises(ValueError, match=r"part-000000.txt is not as it was written; remove"):
            is_done(manifest, shard)
        path.unlink()
        with pytest.raises(ValueError, match=r"part-000000.txt is gone; remove"):
            is_done(manifest, shard)


class Copied:
    """A job that gives the text back."""

    def describe(self) -> dict[str, str]:
        return {}

    def start(self) -> Work:
        return lambda shard, rows: b"".join(cell or b"" for row in rows for cell in row)


def test_what_ray_cannot_serve_is_one_line(place, tmp_path, capsys):
    check = ["check", place / "model", place / "source", place / "target", "--on", "ray", "--out", tmp_path / "out"]
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in [*check, "--page", tmp_path / "page.html"]])
    assert end.value.code == 2
    assert "--page cannot be used with --on ray" in capsys.readouterr().err
    command = ["translate", place / "model", place / "source", "--device", "cpu"]
    for words, message in (
        (["--on", "spark", "--out", tmp_path / "out"], "on is 'spark'; wanted ray"),
        (["--on", "ray", "--document", "html", "--out", tmp_path / "out"], "--document cannot be used with --on ray"),
        (["--on", "ray"], "wanted SRC and --out FOLDER"),
        (["--on", "ray", "--out", place / "model" / "out"], "model"),
    ):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in [*command, *words]])
        assert end.value.code == 2
        assert message in capsys.readouterr().err
