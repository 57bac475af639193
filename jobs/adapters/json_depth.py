"""JSON that is nested too deeply, found before a parser meets it: streamed parsing takes the square of the depth."""

from __future__ import annotations

from typing import BinaryIO

import ijson
import numpy as np

MAX_DEPTH = 1024


def checked(chunk: bytes) -> bytes:
    """The same bytes; raises JSONError when brackets lead more than MAX_DEPTH deeper within them.

    Brackets in texts count, too: they come in pairs or are few.
    """
    codes = np.frombuffer(chunk, np.uint8)
    opened, closed = (codes == ord("[")) | (codes == ord("{")), (codes == ord("]")) | (codes == ord("}"))
    depth = np.cumsum(opened.astype(np.int32) - closed.astype(np.int32))
    if (depth - np.minimum.accumulate(depth)).max(initial=0) > MAX_DEPTH:
        raise ijson.JSONError(f"nested deeper than {MAX_DEPTH}")
    return chunk


class Shallow:
    """A stream whose bytes are checked as they are read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """The next bytes; raises JSONError as `checked` does."""
        return checked(self._stream.read(size))
