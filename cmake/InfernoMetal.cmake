# Whether the Metal backend can be built: turns INFERNO_METAL off, in one line, where something is missing.
#
# INFERNO_METAL_CPP is the folder of Apple's metal-cpp, which tools/fetch_metal_cpp fetches. On Linux the GPU is an
# emulator (tests/metal/fake), for tests. metal-cpp's headers declare blocks, which clang alone knows: other compilers
# leave the sources that include them to it.
set(INFERNO_METAL_CPP ${PROJECT_SOURCE_DIR}/build-metal-cpp CACHE PATH "Folder of Apple's metal-cpp")
find_program(INFERNO_CLANG clang++-19)
set(missing "")
if(NOT EXISTS ${INFERNO_METAL_CPP}/Metal/Metal.hpp)
  set(missing "no metal-cpp in ${INFERNO_METAL_CPP} (tools/fetch_metal_cpp fetches it)")
elseif(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang AND NOT INFERNO_CLANG)
  set(missing "no clang++-19")
elseif(NOT APPLE AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|x86_64")
  set(missing "elsewhere than on a Mac it needs an ARM or x86-64 CPU")
elseif(NOT APPLE AND NOT INFERNO_TESTS)
  set(missing "elsewhere than on a Mac it is for tests")
endif()
if(missing)
  message(STATUS "inferno: the Metal backend is not built: ${missing}")
  set(INFERNO_METAL OFF)
endif()

# The target's sources include metal-cpp.
function(inferno_use_metal_cpp target)
  target_include_directories(${target} SYSTEM PRIVATE ${INFERNO_METAL_CPP})
  if(APPLE)
    return()
  endif()
  set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  # Objective-C lets one send messages to null, so metal-cpp calls members of null pointers.
  if(INFERNO_SANITIZE MATCHES undefined)
    target_compile_options(${target} PRIVATE -fno-sanitize=null)
  endif()
  # Blocks, and the CPU of Macs with Apple silicon by Apple's name.
  target_compile_options(${target} PRIVATE -fblocks)
  target_compile_definitions(${target} PRIVATE __arm64__=1)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/tools/with_clang)
  endif()
endfunction()
