"""Reading ahead in a thread of its own."""

from __future__ import annotations

import subprocess
import sys


def test_a_thread_that_waits_for_input_does_not_spoil_the_end():
    """Python's own stdin, held by a thread at exit, would be a fatal error."""
    program = (
        "import time\nfrom rela.data.corpus import open_text\nfrom rela.decoding.background import Ahead\n"
        "Ahead(lambda: open_text('-').readline())\ntime.sleep(0.3)\nprint('over')\n"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        waiting.wait(timeout=60)  # its input stays open, and nothing comes
        assert waiting.returncode == 0
        assert waiting.stdout.read() == "over\n"
        assert not waiting.stderr.read()
    finally:
        waiting.kill()
        for stream in (waiting.stdin, waiting.stdout, waiting.stderr):
            stream.close()
