"""What goes to a text process and comes from it: frames of a few fields in JSON and any bytes. Pure."""

import json
import struct
from collections.abc import Mapping
from typing import Any

LENGTHS = struct.Struct("!II")  # of the fields and of the bytes after them
MOST_FIELD_BYTES = 64 << 10
MOST_BYTES = 256 << 20  # a vocabulary of the largest tokenizer file
TOO_LARGE = "MEMORY"
"""In place of an error's code: the process got no more memory."""


def frame(fields: Mapping[str, Any], data: bytes = b"") -> bytes:
    """One message."""
    told = json.dumps(fields).encode()
    return LENGTHS.pack(len(told), len(data)) + told + data


def lengths(head: bytes) -> tuple[int, int]:
    """What follows the head of a frame. Raises: ValueError for more than there ever is."""
    fields, data = LENGTHS.unpack(head)
    if fields > MOST_FIELD_BYTES or data > MOST_BYTES:
        raise ValueError(f"a frame of {fields} and {data} bytes")
    return fields, data
