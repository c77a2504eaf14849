# Settings every target shares: language level, warnings, numerics, sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

add_library(inferno_options INTERFACE)
# Results must not depend on whether the compiler fuses a multiply and an add: every fma is explicit.
target_compile_options(inferno_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -ffp-contract=off>)
# Of a class whose file is not the one being compiled, which in a unity build is every class.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(inferno_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
if(INFERNO_WERROR)
  target_compile_options(inferno_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(INFERNO_SANITIZE)
  add_compile_options(-fsanitize=${INFERNO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${INFERNO_SANITIZE})
endif()
if(INFERNO_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
# The preset asan optimizes nothing, which halves the time to compile, but targets that tests wait for: those that
# compute much. Fuzzers need no coverage of them, and checks for addresses that wrap around would double the time that
# the largest kernels take to compile.
function(inferno_computes)
  if(NOT INFERNO_FUZZ)
    return()
  endif()
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE -O1 -fno-sanitize=fuzzer-no-link,pointer-overflow)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # theirs are not optimized
  endforeach()
endfunction()
target_include_directories(inferno_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# 1 or 0: whether text can be turned into tokens in this build.
target_compile_definitions(inferno_options INTERFACE INFERNO_TOKENIZER=$<BOOL:${INFERNO_TOKENIZER}>)
