# Toolchain of `make check-macos`: clang 19 as a cross compiler for Apple silicon. INFERNO_MACOS_SDK is the folder that
# tools/macos_sdk.py wrote: Darwin's and libc++'s headers, and what stands for Homebrew's packages.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES INFERNO_MACOS_SDK)

set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_CXX_COMPILER_TARGET arm64-apple-macos13.3)
set(CMAKE_AR llvm-ar-19 CACHE STRING "")
set(CMAKE_RANLIB llvm-ranlib-19 CACHE STRING "")
set(CMAKE_INSTALL_NAME_TOOL llvm-install-name-tool-19 CACHE STRING "")

set(CMAKE_OSX_DEPLOYMENT_TARGET 13.3 CACHE STRING "")
set(CMAKE_OSX_ARCHITECTURES arm64 CACHE STRING "")
set(CMAKE_OSX_SYSROOT ${INFERNO_MACOS_SDK} CACHE PATH "")
# libc++ is the system's, of which there is no list of names here: they are looked up when the program starts, and
# tools/check_macos checks that they are names of the C++ runtime. Everything else must be found by the linker.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-fuse-ld=lld -Wl,-undefined,dynamic_lookup")
set(CMAKE_SHARED_LINKER_FLAGS_INIT ${CMAKE_EXE_LINKER_FLAGS_INIT})

set(CMAKE_FIND_ROOT_PATH ${INFERNO_MACOS_SDK}/homebrew)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
