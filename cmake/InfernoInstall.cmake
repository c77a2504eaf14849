# What `make install` puts into a prefix: the programs, libinferno with the headers of include/inferno, and the package
# files that let another project say find_package(inferno) and link inferno::inferno.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# inferno_shared_library(API)
#
# libinferno.so from the static library inferno_API and all it needs. Only what include/inferno marks with INFERNO_API
# is visible in it.
function(inferno_shared_library api)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/shared.cpp "// A shared library needs one source of its own.\n")
  add_library(inferno_shared SHARED ${CMAKE_CURRENT_BINARY_DIR}/shared.cpp)
  add_library(inferno::inferno ALIAS inferno_shared)
  # Nothing inside the library calls the API, so it is linked as a whole; the linker adds what it needs of the rest.
  target_link_libraries(inferno_shared PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,inferno_${api}>)
  target_compile_features(inferno_shared INTERFACE cxx_std_20)
  target_include_directories(inferno_shared INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(inferno_shared PROPERTIES
    OUTPUT_NAME inferno EXPORT_NAME inferno
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endfunction()

# inferno_install(): all install rules; call it when the targets exist.
function(inferno_install)
  install(TARGETS inferno RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET inferno_mpi)
    install(TARGETS inferno_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
  install(PROGRAMS ${PROJECT_BINARY_DIR}/model-generate DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS inferno_shared EXPORT infernoTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/inferno DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  if(TARGET inferno_documentation)
    set(documentation ${PROJECT_BINARY_DIR}/documentation)
    install(FILES ${documentation}/inferno.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${documentation}/inferno.bash RENAME inferno
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${documentation}/_inferno DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${documentation}/inferno.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()

  set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/inferno)
  install(EXPORT infernoTargets NAMESPACE inferno:: DESTINATION ${package_folder})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/infernoConfig.cmake.in
    ${PROJECT_BINARY_DIR}/infernoConfig.cmake INSTALL_DESTINATION ${package_folder})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/infernoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/infernoConfig.cmake ${PROJECT_BINARY_DIR}/infernoConfigVersion.cmake
    DESTINATION ${package_folder})
endfunction()
