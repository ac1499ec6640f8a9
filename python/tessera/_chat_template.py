"""Conversations as prompts, by the Jinja template of a language model's file.

    python -m tessera._chat_template MODEL PROMPT PROGRAM [ARGUMENT...]

writes the question PROMPT (-: standard input) down as the model was taught it and becomes PROGRAM, which reads it on standard
input. `tessera generate --chat` runs this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from . import _native
from ._errors import Error


def render(file: _native.LanguageModelFile, messages: Sequence[Mapping[str, str]]) -> str:
    """The prompt of a conversation, up to where the answer begins. Needs the package jinja2. :class:`Error` TSR-4036 where that is
    missing, TSR-4037 where the file has no template, or one that refuses the conversation."""
    if file.chat_template is None:
        raise Error(
            "the file has no chat template", id="TSR-4037", legal="the metadata 'tokenizer.chat_template'",
            hint="write the prompt out, for generate()",
        )
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise Error(
            "the package jinja2 is missing, by which a conversation becomes a prompt", id="TSR-4036", legal="pip install jinja2",
        ) from error

    def refuse(message: str) -> None:
        raise Error(f"the chat template refuses the conversation: {message}", id="TSR-4037")

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    try:
        template = environment.from_string(file.chat_template)
        return template.render(
            messages=list(messages), add_generation_prompt=True, bos_token=file.begin_text, eos_token=file.end_text
        )
    except TemplateError as error:
        raise Error(f"the chat template of the file fails: {error}", id="TSR-4037", hint="write the prompt out") from error


def main(arguments: Sequence[str]) -> int:
    model, question, program, *rest = arguments
    try:
        text = sys.stdin.read() if question == "-" else question
        prompt = render(_native.LanguageModelFile(model), [{"role": "user", "content": text}])
    except Error as error:
        print(f"error {error}", file=sys.stderr)
        return 1
    # A file in memory, for prompts longer than an argument may be.
    file = os.memfd_create("prompt")
    with os.fdopen(os.dup(file), "wb") as out:
        out.write(prompt.encode("utf-8", "replace"))
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.execv(program, [program, *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
