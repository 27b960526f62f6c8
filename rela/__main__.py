"""`python -m rela` is the same program as `rela`."""

from rela.cli import main

if __name__ == "__main__":
    main()
