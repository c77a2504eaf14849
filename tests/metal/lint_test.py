"""The lint of our Metal sources notices a line that breaks each rule, and only such lines."""

import pathlib
import subprocess
import sys
import tempfile

TRANSLATE = pathlib.Path(__file__).parent / "emulator/translate.py"

BROKEN = {
    "Metal has no double": "double x;",
    "a literal without f": "float x = 1.5;",
    "no lambdas": "int x = [&](int i) { return i; }(1);",
    "C++14": "if constexpr (true) {}",
    "say precise": "float x = exp(1.0f);",
    "not in Metal": "int x = new int;",
    "no swizzles": "uint x = position.xy;",
    "no address space: float* x": "inline void f(float* x) {}",
    "no address space: Group& g": "inline void f(Group& g) {}",
    "no address space: const uint*)": "uint x = *(const uint*)(y);",
    "recursion: f": "inline int f(int x) { return x > 0 ? f(x - 1) : 0; }",
    "no attribute on parameter": "kernel void f(device float* out) {}",
}
RIGHT = """
kernel void f(constant Args& args [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  thread const float* y = 0; threadgroup float s[32]; float e = 1.5f * 1e-5f * precise::exp(1.0f);
  uint n = kRows * 32 + (uint)e; device const uint* w = (device const uint*)(x + 1);
}
"""


def lint(text):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "source.metal"
        source.write_text(text)
        run = subprocess.run([sys.executable, "-B", TRANSLATE, "--lint", source], capture_output=True, text=True)
        return run.returncode, run.stdout


failures = []
for message, text in BROKEN.items():
    status, output = lint(text)
    if status != 1 or message not in output:
        failures.append(f"not noticed: {text} -> {output}")
status, output = lint(RIGHT)
if status != 0:
    failures.append(f"nothing is wrong here: {output}")
sys.exit("\n".join(failures) or 0)
