"""Damage as logs meet it: bits, cuts, splices, wrong encodings, odd JSON; seeded, so that failures can be repeated."""

import gzip
import json
import random

import zstandard

TOKENS = (
    b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b"[", b"]", b":", b",", b"null", b"NaN", b"-Infinity", b"1e999",
    b"18446744073709551616", b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"\t", b"\r", b" ", b"\xc3", b"\xed\xa0\x80",
    b"\x1b[31m",
    b'"code":', b'"execution": {}', b'"timestamp": 1e30', b'{"a":' * 300, b"9" * 5000, b'"sandbox_id": "x"',
)  # fmt: skip
VALUES = (
    None,
    True,
    [],
    {},
    "",
    "\ud800",
    0,
    -1,
    2**70,
    1e300,
    float("nan"),
    {"stdout": "x"},
    [["x"]],
    "{",
    '{"a":1,"a":2}',
)


def damaged(line: bytes, chance: random.Random) -> bytes:
    """One line with one to four damages, and never a line feed in it."""
    if chance.random() < 0.4:
        line = _other_values(line, chance)
    data = bytearray(line)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(9):
            case 0 if data:
                data[place % len(data)] ^= 1 << chance.randrange(8)
            case 1:
                del data[place : place + chance.randint(1, 60)]
            case 2:
                data[place:place] = chance.choice(TOKENS)
            case 3:
                del data[place:]
            case 4:
                data[place:place] = data[place : place + chance.randint(1, 200)]
            case 5:
                other = chance.randrange(len(data) + 1)
                data[place:place] = data[other : other + 50]
            case 6 if data:
                data[place % len(data)] = chance.randrange(256)
            case 7:
                data[:] = data.replace(b'": ', chance.choice((b'" : ', b'"  :', b'"\t:', b'":')), chance.randint(1, 9))
            case 8 if data:
                data[place % len(data)] = chance.choice(b"aZ_9 ")
    return bytes(data).replace(b"\n", b" ")


def _other_values(line: bytes, chance: random.Random) -> bytes:
    """The same object with a field left out, of another type, or twice."""
    record = json.loads(line)
    inner = record["execution"] if isinstance(record.get("execution"), dict) and chance.random() < 0.4 else record
    name = chance.choice(sorted(inner) or [""])
    match chance.randrange(3):
        case 0:
            inner.pop(name, None)
        case 1:
            inner[name] = chance.choice(VALUES)
        case 2:
            text = json.dumps(record)
            return f'{text[:-1]}, "{name}": {json.dumps(chance.choice(VALUES))}}}'.encode()
    return json.dumps(record).encode()


def damaged_file(data: bytes, chance: random.Random) -> bytes:
    """A whole file: compressed or not, then cut, patched or prefixed."""
    packed = bytearray(chance.choice([bytes, gzip.compress, zstandard.compress])(data))
    for _ in range(chance.randint(0, 3)):
        place = chance.randrange(len(packed) + 1)
        match chance.randrange(4):
            case 0:
                del packed[place:]
            case 1 if packed:
                packed[place % len(packed)] ^= 1 << chance.randrange(8)
            case 2:
                packed[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 9)))
            case 3:
                packed[:0] = chance.choice([b"\xff\xfe", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"[", b"{\n"])
    return bytes(packed)
