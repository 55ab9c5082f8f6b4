# SPDX-License-Identifier: Apache-2.0
# What users link: tessera::tessera (C++, <tessera/attention.h>) and tessera::c (C, <tessera/attention_c.h>), the
# same by find_package after an installation and by add_subdirectory or FetchContent.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Headers name each other from the root of the sources, so both trees have that root on the path, and the two
# headers that users include under the project's name.
set(public_headers kernels/attention.h kernels/attention_c.h kernels/report.h kernels/warp/types.h)
foreach(name IN ITEMS attention attention_c)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/tessera/${name}.h @ONLY
       CONTENT "/* SPDX-License-Identifier: Apache-2.0 */\n#include \"kernels/${name}.h\"\n")
endforeach()
foreach(target IN ITEMS tessera_core tessera_shared)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tessera>)
endforeach()
add_library(tessera::tessera ALIAS tessera_core)
add_library(tessera::c ALIAS tessera_shared)
set_target_properties(tessera_core PROPERTIES EXPORT_NAME tessera)
set_target_properties(tessera_shared PROPERTIES EXPORT_NAME c)

# The emulator's modules are loaded at run time. libtessera has them beside itself; a program that holds the static
# library gets their folder in its run path.
target_link_options(tessera_core INTERFACE
  $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>)
if(NOT PROJECT_IS_TOP_LEVEL)
  add_dependencies(tessera_core tessera_sim_modules)
  target_link_options(tessera_core INTERFACE $<BUILD_INTERFACE:LINKER:-rpath,${PROJECT_BINARY_DIR}>)
endif()

if(TESSERA_PYTHON_WHEEL)
  install(TARGETS tessera_shared ${TESSERA_SIM_MODULES} LIBRARY DESTINATION tessera COMPONENT python)
elseif(TESSERA_INSTALL)
  install(TARGETS tessera_core tessera_shared EXPORT tesseraTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS ${TESSERA_SIM_MODULES} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(TARGET tessera_cli)
    file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    set_target_properties(tessera_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
    install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  foreach(header IN LISTS public_headers)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera/${folder})
  endforeach()
  install(DIRECTORY ${PROJECT_BINARY_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
  install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package})
  configure_package_config_file(kernels/cmake/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
                                INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
          DESTINATION ${package})
endif()
