"""What the command line says of its options, said of a function's arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping


def in_python(text: str, arguments: Mapping[str, tuple[str, Mapping[str, str] | None]]) -> str:
    """``arguments``: of each option its argument, and what its words are there; None: any word or number stays."""
    def replaced(found: re.Match[str]) -> str:
        flag, word = found[1], found[2]
        argument, words = arguments.get(flag, (None, {}))
        if argument is None:
            return found[0]
        if words is not None and word not in words:
            return found[0].replace(flag, argument, 1)
        if words is None and not re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", word or "0"):
            word = repr(word)
        return argument if word is None else f"{argument}={words[word] if words else word}"

    return re.sub(r"(--[a-z0-9]+(?:-[a-z]+)*)(?: ([^\s,:;]+))?", replaced, text)
