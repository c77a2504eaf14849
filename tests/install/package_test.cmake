# Installs a finished build into an empty folder, builds examples/ against the installed package alone, and runs them.
#
#   cmake -DBUILD=... -DSOURCE=... -DMODEL=... -DSCRATCH=... -DGENERATOR=... -DCOMPILER=... -DFLAGS=...
#         -P package_test.cmake
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed (${result}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
set(prefix ${SCRATCH}/prefix)
set(examples ${SCRATCH}/examples)
run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

# A copy, so that nothing of the source tree is found by a relative path.
file(COPY ${SOURCE}/examples/ DESTINATION ${examples})
# What the documents show of the library must compile, too: every indented block, each in a scope of its own.
set(program "#include <inferno/inferno.h>\n#include <iostream>\nint main() {\n")
foreach(document README.md docs/library.md)
  file(READ ${SOURCE}/${document} text)
  string(REGEX REPLACE ".*\n## As a library\n" "" text "${text}")
  string(REGEX REPLACE "\n## Read on.*" "" text "${text}")
  string(REPLACE "#include <inferno/inferno.h>\n" "" text "${text}")
  string(REPLACE ";" "<semicolon>" text "${text}")
  string(REGEX MATCHALL "\n(\n*    [^\n]+\n)+" blocks "${text}")
  if(NOT blocks)
    message(FATAL_ERROR "${document} has no example of the library")
  endif()
  foreach(block IN LISTS blocks)
    string(REPLACE "<semicolon>" ";" block "${block}")
    string(APPEND program "{${block}}\n")
  endforeach()
endforeach()
file(WRITE ${examples}/documents.cpp "${program}}\n")
file(APPEND ${examples}/CMakeLists.txt
  "add_executable(documents documents.cpp)\ntarget_link_libraries(documents PRIVATE inferno::inferno)\n")

run("configuring the examples" ${CMAKE_COMMAND} -S ${examples} -B ${SCRATCH}/build -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${FLAGS} -Wall -Wextra -Werror")
run("building the examples" ${CMAKE_COMMAND} --build ${SCRATCH}/build)
run("running the example" ${SCRATCH}/build/tell_story 8 ${MODEL})
if(NOT output MATCHES "^Once upon a time.*tokens per second")
  message(FATAL_ERROR "the example printed:\n${output}")
endif()
run("running the example" ${SCRATCH}/build/many_requests ${MODEL})
if(NOT output MATCHES "She opened.*\\[cancelled\\]")
  message(FATAL_ERROR "the example printed:\n${output}")
endif()
run("the installed program" ${prefix}/bin/inferno --version)
run("the installed program's second name" ${prefix}/bin/model-generate ${MODEL} Once 2)
foreach(file share/man/man1/inferno.1 share/bash-completion/completions/inferno share/zsh/site-functions/_inferno
    share/fish/vendor_completions.d/inferno.fish)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
