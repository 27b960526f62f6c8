"""One picture of the report, and what it shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """What a picture of heads shows; line, layer and heads count from 1, as on the command line."""

    model: str = ""
    line: int = 1
    type: str = "cross"
    layer: int | None = None
    """The middle one, if None."""
    heads: tuple[int, ...] = ()
    """All, if empty."""
    gold: bool = True
    """Whether gold links are outlined, where they are known."""


@dataclass(frozen=True)
class Picture:
    """A picture that is written as `file`.png and `file`.svg, with its caption on the page."""

    file: str
    caption: str
    selection: Selection | None = None
    """What it shows, if the figure has several pictures."""
