"""Commands called in this process."""

import pytest

from rela.cli import main


def run(*arguments, code=0):
    """Call the command line in this process; its exit code must be as expected."""
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    assert (exit.value.code or 0) == code


def refused(capsys, *arguments):
    """The one line that a wrong command prints."""
    run(*arguments, code=2)
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    return error[0]
