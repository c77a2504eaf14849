#!/usr/bin/env python3
"""inferno's kernels against llama.cpp's: the same inputs to both, and both against double precision.

    compare_kernels.py build/tests/llamacpp/kernel_results

Run it with a Python that has llama-cpp-python (bench/compare --peer-python names one); its ggml libraries do the
computing. A case passes when the two agree within the limit of its type, and when inferno is no further from the exact
result than llama.cpp is. NMSE: sum of squared differences / sum of squares.
"""

import ctypes
import json
import pathlib
import struct
import subprocess
import sys

import llama_cpp
import numpy as np

LIBRARIES = pathlib.Path(llama_cpp.__file__).parent / "lib"
THREADS = 2
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q5_0": 6, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "I32": 26}
BLOCKS = {"F32": (1, 4), "F16": (1, 2), "I32": (1, 4), "Q5_0": (32, 22), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210)}
# Largest NMSE between the engines, or twice llama.cpp's own distance from the exact result: it adds F16 products up in
# half precision and rotates by angles that it multiplies up in single precision. Plain 8-bit activations are equal but
# for llama.cpp's scales in half precision; K formats differ in the order of the sum.
LIMITS = {"F32": 1e-11, "F16": 1e-7, "Q8_0": 1e-6, "Q5_0": 1e-6, "Q4_K": 1e-10, "Q6_K": 1e-10}
# An exact result to compare with costs memory; of larger products only some rows are compared.
EXACT_ROWS = 4096


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class TypeTraits(ctypes.Structure):
    _fields_ = [
        ("type_name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("block_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    ]


class Ggml:
    """The few functions of ggml that are needed, on memory of one context at a time."""

    def __init__(self):
        self.base = ctypes.CDLL(str(LIBRARIES / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        self.cpu = ctypes.CDLL(str(LIBRARIES / "libggml-cpu.so"), mode=ctypes.RTLD_GLOBAL)
        pointer, integer, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
        signatures = {
            "ggml_init": (pointer, [InitParams]),
            "ggml_free": (None, [pointer]),
            "ggml_new_tensor_4d": (pointer, [pointer, ctypes.c_int, integer, integer, integer, integer]),
            "ggml_get_data": (pointer, [pointer]),
            "ggml_mul_mat": (pointer, [pointer, pointer, pointer]),
            "ggml_add": (pointer, [pointer, pointer, pointer]),
            "ggml_mul": (pointer, [pointer, pointer, pointer]),
            "ggml_rms_norm": (pointer, [pointer, pointer, real]),
            "ggml_silu": (pointer, [pointer, pointer]),
            "ggml_soft_max": (pointer, [pointer, pointer]),
            "ggml_rope": (pointer, [pointer, pointer, pointer, ctypes.c_int, ctypes.c_int]),
            "ggml_flash_attn_ext": (pointer, [pointer] * 5 + [real, real, real]),
            "ggml_new_graph": (pointer, [pointer]),
            "ggml_build_forward_expand": (None, [pointer, pointer]),
            "ggml_get_type_traits": (ctypes.POINTER(TypeTraits), [ctypes.c_int]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.base, name)
            function.restype, function.argtypes = result, arguments
        self.cpu.ggml_graph_compute_with_ctx.restype = ctypes.c_int
        self.cpu.ggml_graph_compute_with_ctx.argtypes = [pointer, pointer, ctypes.c_int]
        self.cpu.ggml_cpu_init.restype = None
        self.cpu.ggml_cpu_init()
        self.context = None

    def __getattr__(self, name):
        function = getattr(self.base, "ggml_" + name)
        return lambda *arguments: function(self.context, *arguments)

    def begin(self, size):
        self.context = self.base.ggml_init(InitParams(size, None, False))
        if not self.context:
            sys.exit("compare_kernels: ggml has no memory")

    def tensor(self, type_name, data, *shape):
        """Shape as ggml has it, columns first."""
        shape = list(shape) + [1] * (4 - len(shape))
        tensor = self.base.ggml_new_tensor_4d(self.context, TYPES[type_name], *shape)
        ctypes.memmove(self.base.ggml_get_data(tensor), data, len(data))
        return tensor

    def compute(self, result, count):
        graph = self.base.ggml_new_graph(self.context)
        self.base.ggml_build_forward_expand(graph, result)
        if self.cpu.ggml_graph_compute_with_ctx(self.context, graph, THREADS) != 0:
            sys.exit("compare_kernels: ggml failed")
        memory = ctypes.string_at(self.base.ggml_get_data(result), count * 4)
        self.base.ggml_free(self.context)
        return np.frombuffer(memory, np.float32)

    def to_float(self, type_name, data, count):
        if type_name == "F32":
            return np.frombuffer(data, np.float32)
        values = np.empty(count, np.float32)
        traits = self.base.ggml_get_type_traits(TYPES[type_name]).contents
        traits.to_float(ctypes.c_char_p(data), values.ctypes.data, count)
        return values


class Case:
    def __init__(self, stream, length):
        self.head = json.loads(stream.read(length))
        self.tensors = {}
        for tensor in self.head["tensors"]:
            rows, cols = tensor["shape"]
            elements, size = BLOCKS[tensor["type"]]
            self.tensors[tensor["name"]] = (tensor["type"], rows, cols, stream.read(rows * (cols // elements) * size))

    def type(self, name):
        return self.tensors[name][0]

    def shape(self, name):
        return self.tensors[name][1:3]

    def data(self, name):
        return self.tensors[name][3]

    def matrix(self, ggml, name, rows=None):
        type_name, all_rows, cols, data = self.tensors[name]
        rows = rows or all_rows
        elements, size = BLOCKS[type_name]
        part = data[: rows * (cols // elements) * size]
        return ggml.to_float(type_name, part, rows * cols).reshape(rows, cols).astype(np.float64)

    def result(self):
        return np.frombuffer(self.data("out"), np.float32).reshape(self.shape("out"))

    def memory(self):
        return 3 * sum(len(t[3]) for t in self.tensors.values()) + (64 << 20)


def linear(case, ggml):
    rows, cols = case.shape("w")
    tokens = case.shape("x")[0]
    ggml.begin(case.memory())
    out = ggml.mul_mat(
        ggml.tensor(case.type("w"), case.data("w"), cols, rows), ggml.tensor("F32", case.data("x"), cols, tokens)
    )
    if "bias" in case.tensors:
        out = ggml.add(out, ggml.tensor("F32", case.data("bias"), rows))
    theirs = ggml.compute(out, rows * tokens).reshape(tokens, rows)
    looked = min(rows, EXACT_ROWS)
    exact = case.matrix(ggml, "x") @ case.matrix(ggml, "w", looked).T
    if "bias" in case.tensors:
        exact += case.matrix(ggml, "bias").reshape(-1)[:looked]
    return theirs, exact


def rms_norm(case, ggml):
    rows, cols = case.shape("x")
    ggml.begin(case.memory())
    normed = ggml.rms_norm(ggml.tensor("F32", case.data("x"), cols, rows), case.head["eps"])
    theirs = ggml.compute(ggml.mul(normed, ggml.tensor("F32", case.data("w"), cols)), rows * cols)
    x = case.matrix(ggml, "x")
    exact = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + case.head["eps"]) * case.matrix(ggml, "w").reshape(-1)
    return theirs.reshape(rows, cols), exact


def silu(case, ggml):
    rows, cols = case.shape("x")
    ggml.begin(case.memory())
    theirs = ggml.compute(ggml.silu(ggml.tensor("F32", case.data("x"), cols, rows)), rows * cols)
    x = case.matrix(ggml, "x")
    return theirs.reshape(rows, cols), x / (1 + np.exp(-x))


def softmax(case, ggml):
    rows, cols = case.shape("x")
    ggml.begin(case.memory())
    theirs = ggml.compute(ggml.soft_max(ggml.tensor("F32", case.data("x"), cols, rows)), rows * cols)
    return theirs.reshape(rows, cols), exact_softmax(case.matrix(ggml, "x"))


def exact_softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rope(case, ggml):
    rows, cols = case.shape("x")
    d = case.head["head_dim"]
    half_split = case.head["half_split"]
    ggml.begin(case.memory())
    x = ggml.tensor("F32", case.data("x"), d, cols // d, rows)
    positions = ggml.tensor("I32", case.data("positions"), rows)
    theirs = ggml.compute(ggml.rope(x, positions, d, 2 if half_split else 0), rows * cols)
    heads = case.matrix(ggml, "x").reshape(rows, cols // d, d)
    at = np.frombuffer(case.data("positions"), np.int32).astype(np.float64)
    angle = at[:, None, None] * case.head["base"] ** (-2.0 * np.arange(d // 2) / d)
    first = slice(0, d // 2) if half_split else slice(0, d, 2)
    second = slice(d // 2, d) if half_split else slice(1, d, 2)
    exact = np.empty_like(heads)
    exact[..., first] = heads[..., first] * np.cos(angle) - heads[..., second] * np.sin(angle)
    exact[..., second] = heads[..., first] * np.sin(angle) + heads[..., second] * np.cos(angle)
    return theirs.reshape(rows, cols), exact.reshape(rows, cols)


def attention(case, ggml):
    tokens, width = case.shape("q")
    d, kv_heads, cached = case.head["head_dim"], case.head["kv_heads"], case.head["cached"]
    heads, length = width // d, case.shape("k")[0] // kv_heads
    q = case.matrix(ggml, "q").reshape(tokens, heads, d).transpose(1, 0, 2)
    visible = np.arange(length)[None, :] <= np.arange(tokens)[:, None] + cached
    padded = (tokens + 63) // 64 * 64  # ggml wants the mask's rows in 64s
    mask = np.full((padded, length), -np.inf, np.float16)
    mask[:tokens] = np.where(visible, 0, -np.inf)
    ggml.begin(case.memory())
    out = ggml.flash_attn_ext(
        ggml.tensor("F32", q.astype(np.float32).tobytes(), d, tokens, heads),
        ggml.tensor(case.type("k"), case.data("k"), d, length, kv_heads),
        ggml.tensor(case.type("v"), case.data("v"), d, length, kv_heads),
        ggml.tensor("F16", mask.tobytes(), length, padded),
        case.head["scale"],
        0.0,
        0.0,
    )
    theirs = ggml.compute(out, tokens * width).reshape(tokens, width)
    group = heads // kv_heads
    k = np.repeat(case.matrix(ggml, "k").reshape(kv_heads, length, d), group, axis=0)
    v = np.repeat(case.matrix(ggml, "v").reshape(kv_heads, length, d), group, axis=0)
    scores = np.where(visible, q @ k.transpose(0, 2, 1) * case.head["scale"], -np.inf)
    return theirs, (exact_softmax(scores) @ v).transpose(1, 0, 2).reshape(tokens, width)


OPS = {"linear": linear, "rms_norm": rms_norm, "silu": silu, "softmax": softmax, "rope": rope, "attention": attention}


def nmse(tested, reference):
    tested, reference = tested.astype(np.float64), reference.astype(np.float64)
    return float(((tested - reference) ** 2).sum() / (reference**2).sum())


def check(case, ggml):
    """Prints a row; whether the case passes."""
    op = case.head["op"]
    type_name = case.type({"linear": "w", "attention": "k"}.get(op, "x"))
    theirs, exact = OPS[op](case, ggml)
    ours = case.result()
    seen = exact.shape[1]
    apart, our_error = nmse(ours, theirs), nmse(ours[:, :seen], exact)
    their_error = nmse(theirs[:, :seen], exact)
    limit = max(LIMITS[type_name], 2 * their_error if type_name in ("F32", "F16") else 0)
    # 1.1: two roundings of equal quality; 1e-12: the order of a sum.
    passed = bool(apart <= limit and our_error <= max(1.1 * their_error, 1e-12))
    print(
        f"{case.head['name']:<52} {type_name:<5} {apart:10.1e} {limit:8.0e} {our_error:10.1e} {their_error:10.1e}"
        f"{'' if passed else '  FAILED'}",
        flush=True,
    )
    return passed


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"llama-cpp-python {llama_cpp.__version__}; NMSE")
    print(f"{'':<52} {'type':<5} {'apart':>10} {'limit':>8} {'inferno':>10} {'llama.cpp':>10}")
    ggml = Ggml()
    passed = []
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE) as program:
        while length := program.stdout.read(8):
            passed.append(check(Case(program.stdout, struct.unpack("<Q", length)[0]), ggml))
        if program.wait() != 0:
            sys.exit("compare_kernels: kernel_results failed")
    print(f"{len(passed)} cases, {passed.count(False)} failed")
    sys.exit(0 if passed and all(passed) else 1)


if __name__ == "__main__":
    main()
