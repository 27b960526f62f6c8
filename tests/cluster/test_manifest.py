"""A manifest survives being cut off at any byte, and belongs to one job."""

from __future__ import annotations

import pytest

from rela.cluster.manifest import MANIFEST, open_manifest

JOB = {"command": "translate", "beam": 4}


def entry(number: int) -> dict:
    return {"shard": number, "file": f"part-{number}.txt", "rows": 3}


def test_cut_off_anywhere_it_holds_what_was_whole(tmp_path):
    with open_manifest(tmp_path / "whole", JOB) as manifest:
        for number in (2, 0, 1, 0):
            manifest.add(entry(number))
        manifest.finish()
    data = (tmp_path / "whole" / MANIFEST).read_bytes()
    assert data.count(b"\n") == 5
    for end in range(len(data) + 1):
        folder = tmp_path / str(end)
        folder.mkdir()
        (folder / MANIFEST).write_bytes(data[:end])
        with open_manifest(folder, JOB) as manifest:
            assert len(manifest.done) == max(min(data[:end].count(b"\n") - 1, 3), 0)
            assert manifest.complete == (end == len(data))
            for number in range(3):
                manifest.add(entry(number))
            manifest.finish()
        with open_manifest(folder, JOB) as manifest:
            assert manifest.done == {number: entry(number) for number in range(3)}
            assert manifest.complete


def test_another_job_or_other_files_are_refused(tmp_path):
    with open_manifest(tmp_path / "out", JOB), pytest.raises(ValueError, match="another command is writing to"):
        open_manifest(tmp_path / "out", JOB).__enter__()
    with pytest.raises(ValueError, match=r"holds shards of another job \(beam, model changed\)"):
        open_manifest(tmp_path / "out", {"command": "translate", "beam": 1, "model": "x"}).__enter__()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files and no manifest.jsonl"):
        open_manifest(tmp_path / "mine", JOB).__enter__()


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        "3",
        '{"shard": 0}',
        '{"shard": [], "rows": 1}',
        '{"shard": 0, "rows": "1"}',
        '{"shard": 0, "rows": 1}',
        '{"shard": 0, "rows": 1, "file": 3}',
    ],
)
def test_a_damaged_line_is_refused(tmp_path, line):
    with open_manifest(tmp_path / "out", JOB) as manifest:
        manifest.add(entry(0))
    with (tmp_path / "out" / "manifest.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=r"manifest.jsonl is damaged; remove"):
        open_manifest(tmp_path / "out", JOB).__enter__()
