"""A minimal GGUF version 3 writer for the scripts of this folder: metadata and tensors in, one file out."""

import struct

ALIGNMENT = 32
F32, F16, I32, BF16 = 0, 1, 26, 30  # tensor types

_U8, _U32, _I32, _FLOAT, _BOOL, _STRING, _ARRAY = 0, 4, 5, 6, 7, 8, 9


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padding(size):
    return b"\0" * (-size % ALIGNMENT)


class GgufFile:
    """Collects key/value pairs and tensors in file order."""

    def __init__(self):
        self._pairs = []
        self._tensors = []  # (name, shape with the innermost dimension last, type, bytes)

    def _add(self, key, type_id, value):
        self._pairs.append(_string(key) + struct.pack("<I", type_id) + value)

    def u32(self, key, value):
        self._add(key, _U32, struct.pack("<I", value))

    def f32(self, key, value):
        self._add(key, _FLOAT, struct.pack("<f", value))

    def boolean(self, key, value):
        self._add(key, _BOOL, struct.pack("<?", value))

    def string(self, key, value):
        self._add(key, _STRING, _string(value))

    def strings(self, key, values):
        self._add(key, _ARRAY, struct.pack("<IQ", _STRING, len(values)) + b"".join(map(_string, values)))

    def u8s(self, key, values):
        self._add(key, _ARRAY, struct.pack("<IQ", _U8, len(values)) + bytes(values))

    def i32s(self, key, values):
        self._add(key, _ARRAY, struct.pack(f"<IQ{len(values)}i", _I32, len(values), *values))

    def booleans(self, key, values):
        self._add(key, _ARRAY, struct.pack(f"<IQ{len(values)}?", _BOOL, len(values), *values))

    def f32s(self, key, values):
        self._add(key, _ARRAY, struct.pack(f"<IQ{len(values)}f", _FLOAT, len(values), *values))

    def tensor(self, name, shape, type_id, data):
        self._tensors.append((name, shape, type_id, data))

    def write(self, path):
        infos, offset = [], 0
        for name, shape, type_id, data in self._tensors:
            # GGUF counts dimensions from the innermost outwards.
            dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            infos.append(_string(name) + dims + struct.pack("<IQ", type_id, offset))
            offset += len(data) + len(_padding(len(data)))
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self._tensors), len(self._pairs))
        head += b"".join(self._pairs) + b"".join(infos)
        with open(path, "wb") as file:
            file.write(head + _padding(len(head)))
            for _, _, _, data in self._tensors:
                file.write(data + _padding(len(data)))
