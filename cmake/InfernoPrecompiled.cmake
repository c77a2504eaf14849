# Headers of the standard library and of other projects that most files include, parsed once for each kind of target
# instead of once for each file. Part of a build of several files at once (CMAKE_UNITY_BUILD); the other builds find
# the includes that a file lacks. clang takes 6 to 30 % less for a file of such a build; g++ as long as before, so that
# its builds do without.
#
# A compiler takes a precompiled header only with the flags it was made with, hence one for libraries (-fPIC), one for
# programs (-fPIE) and one for tests (-fPIE -O0).
set(INFERNO_COMMON_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <map> <memory>
  <mutex> <optional> <random> <set> <span> <string> <string_view> <thread> <utility> <variant> <vector>
  <fmt/core.h> <nlohmann/json.hpp>)

if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(INFERNO_PRECOMPILED ON)
else()
  set(INFERNO_PRECOMPILED OFF)
endif()

# inferno_precompiled_headers(KIND [PROGRAM] [HEADERS <a.h> ...] [LINK x ...]): makes the header that targets of KIND use.
function(inferno_precompiled_headers kind)
  cmake_parse_arguments(ARG "PROGRAM" "" "HEADERS;LINK" ${ARGN})
  if(NOT INFERNO_PRECOMPILED)
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/precompiled_${kind}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
  if(ARG_PROGRAM)
    add_executable(inferno_precompiled_${kind} EXCLUDE_FROM_ALL ${source})
  else()
    add_library(inferno_precompiled_${kind} STATIC EXCLUDE_FROM_ALL ${source})
  endif()
  target_link_libraries(inferno_precompiled_${kind} PRIVATE inferno_options fmt::fmt nlohmann_json::nlohmann_json ${ARG_LINK})
  target_precompile_headers(inferno_precompiled_${kind} PRIVATE ${INFERNO_COMMON_HEADERS} ${ARG_HEADERS})
endfunction()

# inferno_use_precompiled(TARGET KIND)
function(inferno_use_precompiled target kind)
  if(INFERNO_PRECOMPILED)
    # fmt's definitions are among the flags.
    target_link_libraries(${target} PRIVATE fmt::fmt)
    target_precompile_headers(${target} REUSE_FROM inferno_precompiled_${kind})
  endif()
endfunction()
