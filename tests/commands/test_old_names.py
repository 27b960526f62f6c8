"""Old spellings of options do what today's do, with a warning."""

import pytest

from rela.cli import app
from rela.commands.old_names import OPTIONS, TEXTS, renew


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("analyse A b=B --source s --target t --flip-gold --out r", "analyse A b=B --gold-flipped --out r s t"),
        (
            "plot aer A --target=t --out x --source=s --gold g --one-based",
            "plot aer A --out x --gold g --gold-one-based s t",
        ),
        ("explore A B --gold-source s --gold-target t --gold g", "explore A B --gold g s t"),
        ("explore A --export=x --source S --target T", "explore A --out=x --sentence S --translation T"),
        ("analyse A s t --gold g --tokenised --out r", "analyse A s t --gold g --gold-tokenised --out r"),
        ("align A s t --dev-source d --flip-gold", "align A s t --dev-source d --gold-flipped"),
        ("aer h g --one-based-gold --flip-hypothesis", "aer h g --gold-one-based --hypothesis-flipped"),
    ],
)
def test_an_old_command_line_is_renewed(old, new):
    with pytest.warns(UserWarning, match="now"):
        assert renew(old.split()) == new.split()


@pytest.mark.parametrize("line", ["", "score A s t", "analyse A s t --gold g --gold-source a --gold-target b --out r"])
def test_a_command_line_of_today_is_left_alone(line, recwarn):
    assert renew(line.split()) == line.split()
    assert not recwarn


def test_half_a_text_is_refused():
    with pytest.raises(ValueError, match="--source and --target belong together"):
        renew(["analyse", "A", "--source", "s", "--out", "r"])


def test_old_names_are_free_and_new_names_exist():
    """No option means two things: what is rewritten is no option of today, and what it becomes is one."""
    import typer

    commands = typer.main.get_command(app).commands
    for command, names in OPTIONS.items():
        known = {option for parameter in commands[command].params for option in parameter.opts}
        assert not known & {*names, *TEXTS.get(command, ())}
        assert known >= set(names.values())
