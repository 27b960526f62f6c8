"""The program `rela`, which is also `python -m rela`."""

from rela.interrupts import end_quietly_on_interrupt


def main() -> None:
    """Import the command line, which takes a moment, and run it; Ctrl-C shows no traceback before, in and after it."""
    end_quietly_on_interrupt()
    from rela.cli import main as run

    run()


if __name__ == "__main__":
    main()
