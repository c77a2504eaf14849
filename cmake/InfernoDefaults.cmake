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
target_include_directories(inferno_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# 1 or 0: whether text can be turned into tokens in this build.
target_compile_definitions(inferno_options INTERFACE INFERNO_TOKENIZER=$<BOOL:${INFERNO_TOKENIZER}>)
