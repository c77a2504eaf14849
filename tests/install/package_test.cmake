# Installs a finished build into an empty folder, builds examples/ against the installed package alone, and runs them.
#
#   cmake -DBUILD=... -DEXAMPLES=... -DMODEL=... -DSCRATCH=... -DGENERATOR=... -DCOMPILER=... -DFLAGS=...
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
file(COPY ${EXAMPLES}/ DESTINATION ${examples})
run("configuring the examples" ${CMAKE_COMMAND} -S ${examples} -B ${SCRATCH}/build -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS})
run("building the examples" ${CMAKE_COMMAND} --build ${SCRATCH}/build)
run("running the example" ${SCRATCH}/build/tell_story 8 ${MODEL})
if(NOT output MATCHES "^Once upon a time.*tokens per second")
  message(FATAL_ERROR "the example printed:\n${output}")
endif()
run("the installed program" ${prefix}/bin/inferno --version)
run("the installed program's second name" ${prefix}/bin/model-generate ${MODEL} Once 2)
