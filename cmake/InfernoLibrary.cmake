include(${CMAKE_CURRENT_LIST_DIR}/InfernoPrecompiled.cmake)

# inferno_library(NAME [SEPARATE] SOURCES a.cpp ... [DEPS base tensor ...] [LINK PkgConfig::X ...] [TESTS a_test.cpp ...])
#
# One static library per folder of src/, named inferno_NAME. Unit tests are next to the code and become one
# executable NAME_test whose cases ctest lists one by one. The presets release, dev and asan compile several files of a
# target at once (a unity build, half the time); SEPARATE: not of this one, whose files use the same names for the same
# things.
function(inferno_library name)
  cmake_parse_arguments(ARG "SEPARATE" "" "SOURCES;DEPS;LINK;TESTS" ${ARGN})
  add_library(inferno_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(inferno_${name} PUBLIC inferno_options)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(inferno_${name} PUBLIC inferno_${dep})
  endforeach()
  target_link_libraries(inferno_${name} PUBLIC ${ARG_LINK})
  inferno_use_precompiled(inferno_${name} library)
  if(ARG_SEPARATE)
    set_target_properties(inferno_${name} PROPERTIES UNITY_BUILD OFF)
  endif()
  if(ARG_TESTS)
    inferno_test(${name}_test SOURCES ${ARG_TESTS} DEPS ${name})
  endif()
endfunction()

# Tests discard values: EXPECT_THROW(load(x), Error) ignores what load returns. Optimizing the tests themselves takes
# longer than it saves. A separate library, linked last, because the flags must come after -Wall and -O3.
add_library(inferno_test_options INTERFACE)
target_compile_options(inferno_test_options INTERFACE -Wno-unused-result $<$<CONFIG:Release>:-O0>)

# inferno_test(NAME SOURCES a_test.cpp ... [DEPS base ...] [LABEL slow])
function(inferno_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPS;LINK" ${ARGN})
  if(NOT INFERNO_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # It replaces operator new, which compilers must not see beside its uses.
  set_source_files_properties(../support/allocations.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE inferno_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE inferno_options inferno_test_options ${ARG_LINK} GTest::gtest_main)
  inferno_use_precompiled(${name} test)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE INFERNO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # PRE_TEST: a test program lists its cases when ctest runs, so that building it does not run it.
  if(NOT ARG_LABEL)
    set(ARG_LABEL default)
  endif()
  # A limit against hanging, not a measurement.
  set(timeout 300)
  if(ARG_LABEL STREQUAL slow)
    set(timeout 3600)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${timeout})
endfunction()
