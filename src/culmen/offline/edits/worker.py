"""The process that runs tools: one request frame in, one result frame out, until stdin ends.

A frame is four bytes, its length (big-endian), and a MessagePack body.
"""

from __future__ import annotations

import os
import sys
from random import Random
from typing import BinaryIO

import msgspec

from culmen.core.event import EditRequest, Edits
from culmen.offline.edits import TOOLS
from culmen.offline.edits.clustering import kmeans

_TOOLS = TOOLS | {"kmeans": kmeans}


def perform(request: EditRequest) -> Edits:
    """Run one tool; an unknown name is a fault of the result."""
    tool = _TOOLS.get(request.tool)
    if tool is None:
        return Edits(fault="unknown_tool")
    return tool(request.candidates, request.options, Random(request.seed))


def serve(requests: BinaryIO, results: BinaryIO) -> None:
    """Answer requests in their order."""
    decoder, encoder = msgspec.msgpack.Decoder(EditRequest), msgspec.msgpack.Encoder()
    while len(head := requests.read(4)) == 4:
        body = encoder.encode(perform(decoder.decode(requests.read(int.from_bytes(head, "big")))))
        results.write(len(body).to_bytes(4, "big") + body)
        results.flush()


def main() -> None:
    """Serve on stdin and stdout, out of the way of the evaluations; whatever a library prints goes to stderr."""
    os.nice(5)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, results)


if __name__ == "__main__":
    main()
