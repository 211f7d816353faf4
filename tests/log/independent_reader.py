"""A reader of format 1 by a stranger: standard library only, from the comment in framing.py alone."""

import hashlib
import struct
import sys
import zlib
from pathlib import Path


def demand(truth: bool, what: str) -> None:
    if not truth:
        sys.exit(f"does not verify: {what}")


def read(folder: Path) -> None:
    files = [path.read_bytes() for path in folder.glob("*.evlog")]
    segments = sorted(files, key=lambda data: struct.unpack_from("<Q", data, 32))
    link, digest, sequence, position = (0, 0, 0, bytes(32)), bytes(32), 0, 0
    for number, data in enumerate(segments, 1):
        demand(data[:12] == b"EVSRLOG1" + struct.pack("<HH", 1, 192), "segment format")
        demand(hashlib.sha256(data[:160]).digest() == data[160:192], "segment header")
        demand(struct.unpack_from("<QQ", data, 32) == (number, sequence + 1), "segment number")
        demand(struct.unpack_from("<QQQ32s", data, 72) == link, "link to the segment before")
        demand(struct.unpack_from("<Q", data, 128)[0] == position + 1, "first position")
        digest = hashlib.sha256(data[96:128] + data[160:192]).digest()
        salt, at, flush, index = zlib.crc32(data[48:64]), 192, 0, -1
        following = segments[number] if number < len(segments) else None
        end = len(data) if following is None else struct.unpack_from("<Q", following, 80)[0]
        while at < end:
            head, stored = data[at : at + 32], data[at + 32 : at + 64]
            magic, length, found, kind, flags, f, i, crc = struct.unpack("<4sIQHHIII", head)
            payload, pad = data[at + 64 : at + 64 + length], -length % 8
            demand(magic == b"\xf5evr" and zlib.crc32(head[:28], salt) == crc, "record header")
            demand(found == sequence + 1 and kind in (1, 2, 3) and flags == 1, "record order")
            demand((f == flush and i == index + 1) or (f > flush and i == 0), "flush order")
            digest = hashlib.sha256(digest + head + payload).digest()
            demand(digest == stored, "chain digest")
            demand(data[at + 64 + length : at + 64 + length + pad] == bytes(pad), "padding")
            if kind == 1:
                position += 1
                print(position, length, digest.hex(), payload.hex())
            sequence, flush, index, at = found, f, i, at + 64 + length + pad
        link = (number, at, sequence, digest)


if __name__ == "__main__":
    read(Path(sys.argv[1]))
