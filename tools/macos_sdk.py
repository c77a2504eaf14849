#!/usr/bin/env python3
"""Writes a folder that clang takes for a macOS SDK, so that this machine can compile and link for Apple silicon.

    tools/macos_sdk.py ZIGLANG_WHEEL FOLDER [METAL_CPP]

PyPI's ziglang 0.14.1 carries Darwin's headers, the names in libSystem, and libc++ 19's headers. FOLDER/homebrew stands for
Homebrew's packages: the headers of this machine's packages, and for libraries the names that this machine's export.
METAL_CPP is the folder that tools/fetch_metal_cpp wrote: it lists the names that programs take from Metal and Foundation.
"""

import pathlib
import re
import subprocess
import sys
import zipfile

# Where the wheel's folders go.
HEADERS = {
    "ziglang/lib/libcxx/include/": "usr/include/c++/v1/",
    "ziglang/lib/libcxxabi/include/": "usr/include/c++/v1/",
    "ziglang/lib/libc/include/any-macos-any/": "usr/include/",
    "ziglang/lib/libc/darwin/": "usr/lib/",
}

# What Apple's build of libc++ defines in this header. The wheel's copy of __config does not include it.
CONFIG_SITE = """\
#pragma once
#define _LIBCPP_ABI_VERSION 1
#define _LIBCPP_ABI_NAMESPACE __1
#define _LIBCPP_HAS_THREAD_API_PTHREAD
#define _LIBCPP_PSTL_BACKEND_SERIAL
#define _LIBCPP_HARDENING_MODE_DEFAULT _LIBCPP_HARDENING_MODE_NONE
"""

# Libraries of headers alone: CMake package, target, folder in the include path, definitions. Debian's Boost is older than
# Homebrew's: it knows std::invoke_result, which replaced what libc++ no longer has, but has to be told.
HEADER_ONLY = [
    ("fmt", "fmt::fmt", "fmt", "FMT_HEADER_ONLY"),
    ("spdlog", "spdlog::spdlog", "spdlog", "SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY"),
    ("nlohmann_json", "nlohmann_json::nlohmann_json", "nlohmann", ""),
    ("CLI11", "CLI11::CLI11", "CLI", ""),
    ("Boost", "Boost::headers", "boost", "BOOST_ASIO_HAS_STD_INVOKE_RESULT"),
]

# Apple's libraries beside libSystem: where a program finds them, and where the linker looks.
FRAMEWORKS = {
    "Metal": ("/System/Library/Frameworks/Metal.framework/Versions/A/Metal", "System/Library/Frameworks/Metal.framework/Metal.tbd"),
    "Foundation": ("/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation", "System/Library/Frameworks/Foundation.framework/Foundation.tbd"),
    "libobjc": ("/usr/lib/libobjc.A.dylib", "usr/lib/libobjc.tbd"),
}  # fmt: skip

# What metal-cpp includes of frameworks that the wheel has no headers of, as far as it uses them.
FRAMEWORK_HEADERS = {
    "CoreFoundation/CoreFoundation.h": "#include <cmath>\n#include <cstdint>\ntypedef double CFTimeInterval;\n",
    "CoreGraphics/CGColorSpace.h": "typedef struct CGColorSpace* CGColorSpaceRef;\n",
    "CoreGraphics/CGGeometry.h": "typedef double CGFloat;\nstruct CGSize { CGFloat width, height; };\n",
    "IOSurface/IOSurfaceRef.h": "typedef struct __IOSurface* IOSurfaceRef;\n",
}

# Libraries with code: name for pkg-config and the linker, header. hwloc is left out: a Mac does without.
LIBRARIES = [("libpcre2-8", "pcre2-8", "pcre2.h"), ("libutf8proc", "utf8proc", "utf8proc.h")]


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            for source, target in HEADERS.items():
                if name.startswith(source) and not name.endswith("/"):
                    path = folder / target / name[len(source) :]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.read(name))
    site = folder / "usr/include/c++/v1"
    (site / "__config_site").write_text(CONFIG_SITE)
    config = (site / "__config").read_text()
    (site / "__config").write_text(config.replace("#include <__configuration/abi.h>", "#include <__config_site>\n#include <__configuration/abi.h>", 1))


def write_library(path, install_name, symbols):
    """A text file that the linker reads instead of a library: what it is called and which names it has."""
    listed = ", ".join(sorted(symbols))
    exports = f"exports:\n  - targets: [ arm64-macos ]\n    symbols: [ {listed} ]\n" if symbols else ""
    path.write_text(
        f"--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: '{install_name}'\n{exports}...\n"
    )


def link_headers(prefix, name):
    link = prefix / "include" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path("/usr/include") / name
    if not source.exists():
        sys.exit(f"macos_sdk: {source} is missing; tools/install_deps build installs it")
    if not link.is_symlink():
        link.symlink_to(source)


def add_header_only(prefix, package, target, headers, definitions):
    link_headers(prefix, headers)
    config = prefix / "lib/cmake" / package / f"{package}Config.cmake"
    config.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"add_library({target} INTERFACE IMPORTED)",
        f'target_include_directories({target} SYSTEM INTERFACE "{prefix / "include"}")',
    ]
    if definitions:
        lines.append(f"target_compile_definitions({target} INTERFACE {definitions})")
    config.write_text("\n".join(lines) + "\n")
    config.with_name(f"{package}ConfigVersion.cmake").write_text(
        "set(PACKAGE_VERSION ${PACKAGE_FIND_VERSION})\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
    )


def names_of_library(name):
    """The names that this machine's library exports, with the underscore that Darwin puts in front."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"lib{re.escape(name)}\.so\S* .*=> (\S+)", known)
    if not found:
        sys.exit(f"macos_sdk: no lib{name}.so; tools/install_deps build installs it")
    listing = subprocess.run(
        ["llvm-nm-19", "--dynamic", "--defined-only", "--format=just-symbols", found[1]],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {"_" + line.split("@")[0] for line in listing.split()}


def add_library(prefix, package, name, header):
    link_headers(prefix, header)
    (prefix / "lib/pkgconfig").mkdir(parents=True, exist_ok=True)
    write_library(prefix / f"lib/lib{name}.tbd", f"/opt/homebrew/lib/lib{name}.dylib", names_of_library(name))
    (prefix / f"lib/pkgconfig/{package}.pc").write_text(
        f"Name: {package}\nDescription: stands for Homebrew's\nVersion: 1\n"
        f"Libs: -L{prefix / 'lib'} -l{name}\nCflags: -isystem {prefix / 'include'}\n"
    )


def add_frameworks(folder, metal_cpp):
    imports = (metal_cpp / "imports.txt").read_text().splitlines()
    for library, (install_name, path) in FRAMEWORKS.items():
        names = {line.split()[0] for line in imports if line.endswith(f"(from {library})")}
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_library(folder / path, install_name, names)
    for header, text in FRAMEWORK_HEADERS.items():
        path = folder / "usr/include" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#pragma once\n" + text)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2]).resolve()
    unpack(sys.argv[1], folder)
    write_library(folder / "usr/lib/libc++.tbd", "/usr/lib/libc++.1.dylib", set())
    if len(sys.argv) == 4:
        add_frameworks(folder, pathlib.Path(sys.argv[3]))
    prefix = folder / "homebrew"
    for library in HEADER_ONLY:
        add_header_only(prefix, *library)
    for library in LIBRARIES:
        add_library(prefix, *library)


main()
