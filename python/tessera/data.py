"""Batches of arrays for training: shuffled, and made ahead of time.

    for images, labels in tessera.data.DataLoader(x, y, batch_size=32, shuffle=True, seed=0):
        loss = step(images, labels)
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["DataLoader"]

_END = object()


class DataLoader:
    """The rows of arrays, batch by batch; each iteration over it is an epoch with an order of its own.

    Dimension 0 numbers the rows, of all arrays alike. With ``shuffle`` the order is a function of ``seed`` and the number
    of the epoch, counted from 0: a loader that starts at ``epoch`` goes on where another one ended. The last rows that
    are no whole batch are left out unless ``drop_last`` is False. ``transform`` gets the arrays of a batch and answers
    what the batch is instead. A thread makes up to ``prefetch`` batches ahead; 0 makes each when it is asked for. What
    it raises is raised where the batch is asked for.
    """

    def __init__(
        self, *arrays: Any, batch_size: int = 32, shuffle: bool = False, seed: int = 0, drop_last: bool = True,
        transform: Callable[..., Any] | None = None, prefetch: int = 2, epoch: int = 0,
    ) -> None:
        if not arrays:
            raise ValueError("a DataLoader needs at least one array")
        self.arrays = tuple(np.asarray(array) for array in arrays)
        rows = {array.shape[:1] for array in self.arrays}
        if len(rows) != 1 or rows == {()}:
            shapes = ", ".join(str(array.shape) for array in self.arrays)
            raise ValueError(f"arrays of the shapes {shapes}; expected as many rows in each")
        for name, value, least in (("batch_size", batch_size, 1), ("prefetch", prefetch, 0), ("epoch", epoch, 0)):
            if not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} is {value!r}; expected a whole number, {least} or more")
        self.batch_size, self.shuffle, self.seed = int(batch_size), shuffle, seed
        self.drop_last, self.transform, self.prefetch, self.epoch = drop_last, transform, int(prefetch), int(epoch)

    @property
    def rows(self) -> int:
        return len(self.arrays[0])

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self.rows // self.batch_size if self.drop_last else -(-self.rows // self.batch_size)

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, epoch]).permutation(self.rows) if self.shuffle else np.arange(self.rows)

    def _batches(self, epoch: int) -> Iterator[Any]:
        order = self._order(epoch)
        for number in range(len(self)):
            rows = order[number * self.batch_size:(number + 1) * self.batch_size]
            batch = tuple(array[rows] for array in self.arrays)
            yield batch if self.transform is None else self.transform(*batch)

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._ahead(self._batches(epoch)) if self.prefetch else self._batches(epoch)

    def _ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        made: queue.Queue[Any] = queue.Queue(self.prefetch)
        unwanted = threading.Event()

        def put(item: Any) -> bool:
            while not unwanted.is_set():
                try:
                    made.put(item, timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                for batch in batches:
                    if not put((True, batch)):
                        return
                put(_END)
            except BaseException as error:  # it belongs to who asks for the batch
                put((False, error))

        thread = threading.Thread(target=work, name="tessera-data", daemon=True)
        thread.start()
        try:
            while (item := made.get()) is not _END:
                is_batch, value = item
                if not is_batch:
                    raise value
                yield value
        finally:
            unwanted.set()
            thread.join()
