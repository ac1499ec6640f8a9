"""Ctrl-C while the compiler or the interpreter works."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

_PATIENCE = 2.0  # seconds that a program that ends waits for work that nobody wants any more
_abandoned: list[threading.Thread] = []


def interruptible(work: Callable[[], Result], cancel: Callable[[], Any]) -> Result:
    """``work()``, in a thread of its own when this is the main thread, which hears signals meanwhile: KeyboardInterrupt is
    raised at once, ``cancel`` is called, and the work ends on its own when it notices."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    outcome: list[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:  # whatever it is, it belongs to the caller
            outcome.append((False, error))
        done.set()

    thread = threading.Thread(target=run, name="tessera", daemon=True)
    thread.start()
    try:
        done.wait()
        thread.join()
    except BaseException:
        cancel()
        _abandoned.append(thread)
        raise
    fine, result = outcome.pop()
    if fine:
        return result
    try:
        raise result
    finally:
        del result  # no cycle through the traceback


@atexit.register
def _end() -> None:
    """The compiler's tables go away with the process: nothing may use them then."""
    for thread in _abandoned:
        thread.join(_PATIENCE)
    if any(thread.is_alive() for thread in _abandoned):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
