"""What is no language and is copied: {name}, %s, URLs, e-mail addresses, names of code, symbols, emoji."""

from __future__ import annotations

import re

from rela.markup.passages import Passage, PassageBuilder
from rela.markup.place import Escape
from rela.markup.rebuild import rebuild

EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}"  # flags
    "|[0-9#*]\ufe0f?\u20e3"  # keycaps
    "|(?:[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff]"
    "[\U0001f3fb-\U0001f3ff\ufe0f]*"
    "(?:\u200d[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff][\U0001f3fb-\U0001f3ff\ufe0f]*)*)"
)
PLACEHOLDER = re.compile(
    r"""
      (?:https?|ftp)://[^\s<>"']*[^\s<>"'.,;:!?)\]}]       # a URL, without the punctuation behind it
    | www\.[^\s<>"']*[^\s<>"'.,;:!?)\]}]
    | [\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,9}                          # an e-mail address
    | \$\{[^{}\s]*\} | \{\{[^{}]*\}\} | \{[^{}\s]*\}        # ${name}, {{ name }}, {name}, {0}
    | \{%[^{}]*%\}                                         # {% raw %}
    | \{\w{1,64},(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\}){1,2000}\}  # {n, plural, one {# dog} other {# dogs}}
    | %\([^()\s]*\)[-+\ #0]*+\d*(?:\.\d+)?[a-zA-Z]           # %(name)s
    | %(?:\d+\$)?[-+\#0]*+\d*(?:\.\d+)?(?:hh|ll|[hlLzjt])?[diouxXeEfgGcsSaAp@](?![A-Za-z])   # %s, %1$s, %-5.2f, %ld
    | %%
    | </?[A-Za-z][^<>]{0,300}>                              # a tag in plain text
    | (?<![\w\#@])[\#@]\w+                                 # #tag, @name
    | (?<![\w:]):[a-z][a-z0-9_+-]*:(?![\w:])               # :smile:
    | (?<!\w)[A-Za-z]:\\[^\s<>"|*?]*[^\s<>"|*?.,;:!)]      # C:\a\b.txt
    | (?<![^\W_])[^\W_]+(?:_+[^\W_]+)+(?:\.[A-Za-z0-9]{1,5}(?!\w))?   # a_name, a_name.txt; one try a word
    | [<>{}|\\^~=*\#_©®™±×÷←-⇿•§¶]+                         # symbols
    """
    + f"| {EMOJI}",
    re.VERBOSE,
)


def find_placeholders(text: str) -> list[str]:
    """The placeholders of a text, in order."""
    return [match.group() for match in PLACEHOLDER.finditer(text)]


def all_copied(source: str, target: str) -> bool:
    """Whether a translation holds the placeholders of its source, each as often, and no others."""
    return sorted(find_placeholders(source)) == sorted(find_placeholders(target))


def hide_placeholders(passage: Passage, escape: Escape = str) -> Passage:
    """The passage without its placeholders in the text: each has become a mark, to be put back by the links."""

    def add_text(builder: PassageBuilder, text: str, following: str) -> None:
        at = 0
        for match in PLACEHOLDER.finditer(text):
            builder.add_text(text[at : match.start()])
            builder.add_word(escape(match.group()), text[match.end() : match.end() + 1] or following)
            at = match.end()
        builder.add_text(text[at:])

    return rebuild(passage, add_text)
