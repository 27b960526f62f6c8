"""Word links by fast_align, trained on given text, for comparison with our aligners.

    python -m experiments.fast_align_links --program fast_align/build/fast_align --train-source train.de \\
        --train-target train.en --source gold.de --target gold.en --out fast_align

Training and test pairs are aligned together, in both directions, with the options that the authors of fast_align
recommend (`-d -o -v`). Text and output files are the same as for `experiments.eflomal_links`. Seconds are CPU time of
one core, not wall-clock time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments import programs
from experiments.eflomal_links import all_pairs, read_test_links, text_options, write_links


def main(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text_options(parser)
    parser.add_argument("--program", type=Path, required=True, help="fast_align, built by its CMakeLists.txt")
    options = parser.parse_args(arguments)
    if not options.program.is_file():
        raise SystemExit(f"{options.program} is not there; wanted the program fast_align")

    programs.check_output(options.out)
    pairs, count = all_pairs(options)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        text.write_text("".join(f"{source} ||| {target}\n" for source, target in pairs), encoding="utf-8")
        before, found = resource.getrusage(resource.RUSAGE_CHILDREN), []
        for name, more in (("forward", ()), ("reverse", ("-r",))):
            path = Path(folder) / name
            with open(path, "wb") as file:
                command = [str(options.program.absolute()), "-i", str(text), "-d", "-o", "-v", *more]
                subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
            found.append(path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        there, back = (read_test_links(path, count) for path in found)
    write_links(options.out, there, back)
    print(f"{len(pairs):,} pairs in {seconds:.1f} s of one core, {len(pairs) / seconds:,.0f} pairs a second")
    return seconds


if __name__ == "__main__":
    sys.exit(programs.run(main))
