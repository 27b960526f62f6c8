"""Training by torchrun on two nodes, here two agents on this machine that meet over TCP; one of them is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rela.config import Config
from tests.training.training_files import checkpoint, events, final_bytes

STEPS = {"steps": 300, "save_every": 10, "log_every": 10, "keep_last": 2}


def agent(line: list[str], port: int, environment: dict[str, str]) -> subprocess.Popen:
    """A node: torchrun with one process of its own."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"]
    launch = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3"]
    command = [sys.executable, *launch, *meeting, *line[1:]]
    environment = {**environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # see docs/scaling.md
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if parent == process:
            found.append(int(path.parent.name))
    return found


def kill_node(node: subprocess.Popen) -> None:
    """As a power cut does: the agent and its training process, at once."""
    for process in [node.pid, *children(node.pid)]:
        os.kill(process, signal.SIGKILL)
    node.communicate()


def wait_for_meeting(port: int) -> None:
    """Until a node listens where all are to meet."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens at {port}")


def wait_for(path: Path, nodes: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + 240
    while not path.exists():
        assert all(node.poll() is None for node in nodes), [node.communicate() for node in nodes]
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.campaign
def test_a_node_that_dies_and_comes_back_leaves_no_trace_in_the_weights(make_config, command, run, environment, port):
    whole: Config = make_config("whole", **STEPS)
    result = run(whole, processes=2)
    assert result.returncode == 0, result.stderr
    config: Config = make_config("killed", **STEPS)
    nodes = [agent(command(config), port, environment)]
    wait_for_meeting(port)  # at the node that stays
    nodes.append(agent(command(config), port, environment))
    try:
        wait_for(checkpoint(config, 30), nodes)
        kill_node(nodes.pop())
        nodes.append(agent(command(config), port, environment))
        outputs = [node.communicate(timeout=300) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                kill_node(node)
    assert [node.returncode for node in nodes] == [0, 0], outputs
    steps = [row["step"] for row in events(config)]
    assert steps[-1] == 300
    assert len(steps) > len(set(steps)) or len(steps) == 30  # what was after the last checkpoint was done again
    assert final_bytes(config) == final_bytes(whole)
    assert "another of the 2 processes of this run has ended" in outputs[0][1]
