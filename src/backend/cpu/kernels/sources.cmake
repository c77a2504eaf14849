# The kernel tables for CMAKE_SYSTEM_PROCESSOR: sets `kernels`, and the instruction-set flags of the files that need
# them. Each table is compiled for exactly the CPU it is chosen on. Not -mcpu=native: the program must run elsewhere,
# and gcc 12 expands it wrongly on some cores.
set(kernels
  ${CMAKE_CURRENT_LIST_DIR}/select.cpp
  ${CMAKE_CURRENT_LIST_DIR}/interleaved/byte_panels.cpp
  ${CMAKE_CURRENT_LIST_DIR}/interleaved/interleaved.cpp
  ${CMAKE_CURRENT_LIST_DIR}/interleaved/plain.cpp
  ${CMAKE_CURRENT_LIST_DIR}/scalar/scalar_attention.cpp
  ${CMAKE_CURRENT_LIST_DIR}/scalar/scalar_linear.cpp
  ${CMAKE_CURRENT_LIST_DIR}/scalar/scalar_recurrent.cpp
  ${CMAKE_CURRENT_LIST_DIR}/scalar/scalar_vector.cpp)

macro(inferno_kernel_file file)
  list(APPEND kernels ${CMAKE_CURRENT_LIST_DIR}/${file})
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/${file} PROPERTIES
    COMPILE_OPTIONS "${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
endmacro()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  inferno_kernel_file(arm/neon.cpp)
  inferno_kernel_file(arm/neon_dotprod.cpp -march=armv8.2-a+dotprod)
  set(i8mm -march=armv8.2-a+dotprod+i8mm+bf16+fp16+fp16fml -mtune=neoverse-v1
    # The tiles fill the registers; gcc's first scheduling pass moves loads up and spills.
    $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
  inferno_kernel_file(arm/neon_i8mm.cpp ${i8mm})
  inferno_kernel_file(arm/neon_i8mm_intrinsics.cpp ${i8mm})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
    # gcc 12 warns about the deliberately undefined operands inside its own AVX-512 intrinsics.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set(avx512_vnni ${avx512} -mavx512vnni)
  inferno_kernel_file(x86/avx2.cpp ${avx2})
  inferno_kernel_file(x86/avx512.cpp ${avx512})
  inferno_kernel_file(x86/avx512_vnni.cpp ${avx512_vnni})
  inferno_kernel_file(x86/amx.cpp ${avx512_vnni} -mavx512bf16 -mprfchw -mamx-tile -mamx-int8 -mamx-bf16)
endif()
