"""The Hopper kernels build without a GPU, in the form that makes them fast, and fit a processor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("triton.experimental.gluon")

SHARED_BYTES = 227 * 1024  # of one processor


@pytest.mark.skipif("nvidia" not in triton.backends.backends, reason="this Triton compiles nothing for NVIDIA")
def test_they_compile_ahead_of_time():
    here = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(here.parents[2]), environment.get("PYTHONPATH", "")])
    program = [sys.executable, str(here / "compile_ahead.py")]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    for name in rows.keys() - {"decode"}:
        assert rows[name]["shared"] <= SHARED_BYTES
        assert rows[name]["wgmma.mma_async"] > 0  # products on the tensor cores, asynchronously
        assert rows[name]["cvt.rn.relu"] > 0  # the activation is the conversion
        assert (rows[name]["cp.reduce.async.bulk"] > 0) == ("backward" in name)
        assert (rows[name]["0xBB99"] > 0) == ("masked" in name)  # bits of a mask, two at a time
        # a bias, transposed on the way to the registers, or the weights of the other warpgroup
        assert (rows[name]["ldmatrix"] > 0) == ("biased" in name or name == "wide backward")
    # sixteen bytes a thread, straight to shared memory
    assert rows["decode"]["shared"] <= SHARED_BYTES // 4
    assert rows["decode"]["cp.async.cg"] > 0
