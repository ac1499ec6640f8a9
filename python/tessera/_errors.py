"""The two kinds of errors: what a user can mend, and bugs of Tessera."""

from __future__ import annotations

import re


def _in_python(hint: str) -> str:
    """The command line's options as arguments of `tessera.compile`."""
    hint = re.sub(r"--shape (\S+)=(\d+(?:x\d+)*)", lambda found: f"shapes={{{found[1]!r}: ({', '.join(found[2].split('x'))},)}}", hint)
    return re.sub(r"--dim (\S+?)=(\d+)\.\.(\d+)", lambda found: f"dims={{{found[1]!r}: ({found[2]}, {found[3]})}}", hint)


class _Diagnostic(Exception):
    def __init__(self, message: str, *, id: str = "", node: str = "", legal: str = "", hint: str = "", reason: str = "") -> None:
        hint = _in_python(hint)
        lines = [f"{id}: {message}" if id else message]
        lines += [f"  {label + ':':<6} {text}" for label, text in (("node", node), ("legal", legal), ("hint", hint)) if text]
        super().__init__("\n".join(lines))
        self.id = id
        self.message = message
        self.node = node
        self.legal = legal
        self.hint = hint
        self.reason = reason

    def __reduce__(self):
        details = {"id": self.id, "node": self.node, "legal": self.legal, "hint": self.hint, "reason": self.reason}
        return _restore, (type(self), self.message, details)


def _restore(kind, message, details):
    return kind(message, **details)


class Error(_Diagnostic):
    """A mistake in a model, an argument or the machine, which its user can mend.

    Attributes: ``id``, stable, "TSR-1040" (docs/errors.md lists them); ``message``, what was found; ``node``, the
    model's own name of the node; ``legal``, what would be legal; ``hint``, what to do; ``reason``,
    for programs: "open_sizes" (the model can be compiled with values for its sizes), "unsupported" (it uses what Tessera
    does not know) or "". All but ``id`` and ``message`` may be empty.
    """


class InternalError(_Diagnostic):
    """A bug of Tessera. Please report it with the model."""
