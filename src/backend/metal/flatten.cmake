# Writes the kernels as one source, each file once and in place of its first #include: what a Mac compiles when the
# backend starts, and what the tests translate.
#
#   cmake -DFOLDER=kernels -DOUTPUT=inferno.metal -P flatten.cmake
set(seen "")
set(whole "#include <metal_stdlib>\n")

function(append_file name)
  list(FIND seen ${name} found)
  if(NOT found EQUAL -1)
    return()
  endif()
  list(APPEND seen ${name})
  set(seen ${seen} PARENT_SCOPE)
  file(READ ${FOLDER}/${name} text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"([^\"]+)\"" "\\1" included ${include})
    append_file(${included})
    set(seen ${seen} PARENT_SCOPE)
  endforeach()
  # Lines keep their numbers, for messages of compilers.
  string(REGEX REPLACE "#include (\"|<metal_stdlib>)[^\n]*" "" text "${text}")
  set_property(GLOBAL APPEND_STRING PROPERTY whole "#line 1 \"${name}\"\n${text}")
endfunction()

file(GLOB sources RELATIVE ${FOLDER} ${FOLDER}/*.metal)
list(SORT sources)
foreach(source IN LISTS sources)
  append_file(${source})
endforeach()
get_property(text GLOBAL PROPERTY whole)
file(WRITE ${OUTPUT} "${whole}${text}")
