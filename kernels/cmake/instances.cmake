# SPDX-License-Identifier: Apache-2.0
# Writes small translation units from the rows of kernels/configs.def, so that builds run in parallel and an
# edit rebuilds little: for the emulator one for each (row, dtype, head_dim); for CUDA, where reading the headers
# costs as much as a kernel, one for each (row, dtype). The rows are read from the same files that C++ includes;
# a test compares what was built with the table.

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/kernels/configs.def ${PROJECT_SOURCE_DIR}/kernels/registry.def ${PROJECT_SOURCE_DIR}/kernels/sweep.def)

file(STRINGS kernels/registry.def TESSERA_KERNEL_ROWS REGEX "^TESSERA_KERNEL\\(")
file(STRINGS kernels/configs.def TESSERA_CONFIG_ROWS REGEX "^TESSERA_CONFIG\\(")
if(TESSERA_SWEEP)
  file(STRINGS kernels/sweep.def sweep REGEX "^TESSERA_CONFIG\\(")
  list(APPEND TESSERA_CONFIG_ROWS ${sweep})
endif()

# Fields of a row as a list, white space removed.
function(tessera_fields row out)
  string(REGEX REPLACE "^TESSERA_[A-Z]+\\((.*)\\)$" "\\1" fields "${row}")
  string(REGEX REPLACE "[ \t]*,[ \t]*" ";" fields "${fields}")
  set(${out} "${fields}" PARENT_SCOPE)
endfunction()

# Calls callback(kernel-fields config-fields dtype head_dims) for every (row, dtype) of a target, with the head_dims
# that TESSERA_ONLY asks for.
function(tessera_for_each_unit where callback)
  foreach(row IN LISTS TESSERA_CONFIG_ROWS)
    tessera_fields("${row}" c)
    list(GET c 14 places)
    string(REPLACE "|" ";" places "${places}")
    if(NOT where IN_LIST places)
      continue()
    endif()
    list(GET c 0 name)
    foreach(k IN LISTS TESSERA_KERNEL_ROWS)
      tessera_fields("${k}" kernel)
      list(GET kernel 0 kernel_name)
      if(kernel_name STREQUAL name)
        break()
      endif()
    endforeach()
    list(GET c 3 dtypes)
    list(GET c 4 dims)
    string(REPLACE "|" ";" dtypes "${dtypes}")
    string(REPLACE "|" ";" dims "${dims}")
    foreach(dtype IN LISTS dtypes)
      set(wanted "")
      foreach(dim IN LISTS dims)
        tessera_unit_key("${c}" ${dtype} ${dim} key)
        string(FIND "${key}/" "${TESSERA_ONLY}/" at)
        if(NOT TESSERA_ONLY OR at EQUAL 0)
          list(APPEND wanted ${dim})
        endif()
      endforeach()
      if(NOT wanted STREQUAL "")  # a kernel without a head_dim has the number 0
        cmake_language(CALL ${callback} "${kernel}" "${c}" ${dtype} "${wanted}")
      endif()
    endforeach()
  endforeach()
  foreach(v IN ITEMS TESSERA_UNITS TESSERA_UNITS_sm_75 TESSERA_UNITS_sm_89 TESSERA_UNITS_sm_90)
    get_property(units GLOBAL PROPERTY ${v})
    set(${v} "${units}" PARENT_SCOPE)
  endforeach()
endfunction()

# kernel/arch/dtype[/dHEAD_DIM]/config, as registry.cc names it
function(tessera_unit_key c dtype dim out)
  list(GET c 0 name)
  list(GET c 1 arch)
  list(GET c 2 config)
  set(key ${name}/${arch}/${dtype})
  if(NOT dim STREQUAL 0)
    string(APPEND key /d${dim})
  endif()
  set(${out} ${key}/${config} PARENT_SCOPE)
endfunction()

# One unit, with an instance for each of `dims`; `target` is sim or cuda.
function(tessera_write_unit target kernel c dtype dims out)
  list(GET kernel 0 name)
  list(GET kernel 1 type)
  list(GET kernel 2 header)
  list(GET kernel 3 kind)
  list(GET c 1 arch)
  list(GET c 5 rows)
  list(GET c 6 cols)
  list(GET c 7 depth)
  list(GET c 8 warps)
  list(GET c 9 stages)
  list(GET c 10 q)
  list(GET c 11 blocks)
  list(GET c 13 variant)
  set(cpp_f32 float)
  set(cpp_f16 f16)
  set(cpp_bf16 bf16)
  set(cpp_field Fq)
  set(modes of_launch)  # of exp2
  if(target STREQUAL cuda AND kind STREQUAL attention)
    set(modes soft hardware)
  endif()
  set(text "// Written from kernels/configs.def.\n#include ${header}\n")
  if(target STREQUAL sim)
    string(APPEND text "#include \"sim/instance.h\"\n")
    set(suffix cc)
  else()
    string(APPEND text "#include \"kernels/cuda_instance.h\"\n")
    set(suffix cu)
  endif()
  string(APPEND text "namespace tessera::${target} {\nnamespace {\n")
  foreach(dim IN LISTS dims)
    tessera_unit_key("${c}" ${dtype} ${dim} key)
    foreach(mode IN LISTS modes)
      set(full ${key})
      if(NOT mode STREQUAL of_launch)
        string(APPEND full /${mode})
      endif()
      set(id d${dim}_${mode})
      string(APPEND text
        "constexpr Config k_${id}{.arch = Arch::${arch}, .head_dim = ${dim}, .rows = ${rows}, .cols = ${cols}, "
        ".depth = ${depth}, .warps = ${warps}, .stages = ${stages}, .q = QHome::${q}, .blocks = ${blocks}, .variant = Variant::${variant}, .exp2 = Exp2::${mode}};\n"
        "const Registrar r_${id}(make_instance<${type}<${cpp_${dtype}}, k_${id}>>(\"${full}\"));\n")
    endforeach()
  endforeach()
  string(APPEND text "}  // namespace\n}  // namespace tessera::${target}\n")
  # The key without exp2, of all dims: rows of one name may share the others out.
  list(JOIN dims /d dim)
  tessera_unit_key("${c}" ${dtype} ${dim} key)
  string(REGEX REPLACE "[/-]" "_" file ${key})
  set(file ${PROJECT_BINARY_DIR}/instances/${target}/${file}.${suffix})
  get_property(written GLOBAL PROPERTY TESSERA_WRITTEN_UNITS)
  if(file IN_LIST written)
    message(FATAL_ERROR "kernels/configs.def: two rows make ${key}")
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_WRITTEN_UNITS ${file})
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)  # writes only what changed
  set(${out} ${file} PARENT_SCOPE)
endfunction()

# ---- emulator

# The subset for ISA levels that are not built whole and for sanitizers: it proves equal bits.
set(TESSERA_SUBSET "^(flash_forward/sm_90/f32/64|flash_(step1|forward)/sm_75/(f16|f32)/64|flash_(step1|forward)/sm_89/(f16|bf16|f32|field)/64|matmul/|weighted_sum/)")

function(tessera_sim_units kernel c dtype dims)
  list(GET c 0 name)
  list(GET c 1 arch)
  list(GET c 13 variant)
  if(arch STREQUAL sm_90 AND NOT TESSERA_ONLY)  # the emulator runs sm_89's instance where both rows agree
    string(REGEX REPLACE ";sm_90;" ";sm_89;" twin "${c}")
    list(REMOVE_AT twin 11 12)  # blocks and local memory: nothing to the emulator
    foreach(row IN LISTS TESSERA_CONFIG_ROWS)
      tessera_fields("${row}" other)
      list(REMOVE_AT other 11 12)
      if("${other}" STREQUAL "${twin}")
        return()
      endif()
    endforeach()
  endif()
  foreach(dim IN LISTS dims)
    get_property(found GLOBAL PROPERTY TESSERA_UNITS)
    if(TESSERA_ONLY AND found)  # one: without a config, the table's first
      break()
    endif()
    tessera_write_unit(sim "${kernel}" "${c}" ${dtype} ${dim} file)
    set_property(GLOBAL APPEND PROPERTY TESSERA_UNITS ${file})
    if("${name}/${arch}/${dtype}/${dim}" MATCHES "${TESSERA_SUBSET}" AND variant STREQUAL none)
      set_property(GLOBAL APPEND PROPERTY TESSERA_SUBSET_UNITS ${file})
    endif()
  endforeach()
endfunction()

function(tessera_own_isa out)
  set(source "int main() { __builtin_cpu_init(); \
    if (__builtin_cpu_supports(\"avx512f\") && __builtin_cpu_supports(\"avx512bw\") && __builtin_cpu_supports(\"avx512cd\") && \
        __builtin_cpu_supports(\"avx512dq\") && __builtin_cpu_supports(\"avx512vl\")) return 4; \
    return __builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\") ? 3 : 2; }")
  file(WRITE ${PROJECT_BINARY_DIR}/own_isa.cc "${source}")
  try_run(level compiled ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/own_isa.cc)
  set(${out} v${level} PARENT_SCOPE)
endfunction()

# Highway picks AVX2 only where AES and CLMUL are there as well (google/highway #606). GCC would make a memset
# of 128 bytes, a call of microcode, of every register that is set to zero.
function(tessera_isa_flags level out)
  set(${out} -march=x86-64-${level} -maes -mpclmul -fno-tree-loop-distribute-patterns PARENT_SCOPE)
endfunction()

function(tessera_add_sim_modules)
  tessera_for_each_unit(sim tessera_sim_units)
  get_property(subset GLOBAL PROPERTY TESSERA_SUBSET_UNITS)
  if(TESSERA_SANITIZE)
    set(TESSERA_UNITS ${subset})
  endif()
  if(TESSERA_ONLY AND NOT TESSERA_UNITS)
    message(FATAL_ERROR "TESSERA_ONLY: the emulator has no instance ${TESSERA_ONLY}; `tessera list` shows what there is")
  endif()
  tessera_own_isa(own)
  set(whole ${TESSERA_ISA_WHOLE})
  if(whole STREQUAL auto)
    set(whole ${own})
  endif()
  set(levels v4 v3 v2)
  if(TESSERA_SANITIZE OR TESSERA_ONLY)
    set(levels ${own})
  endif()
  message(STATUS "Emulator: ISA levels ${levels}, whole: ${whole}")
  add_custom_target(tessera_sim_modules)
  foreach(level IN LISTS levels)
    tessera_isa_flags(${level} flags)
    # The emulator itself: in the module, and for this machine's own level in the tests of its parts.
    add_library(tessera_sim_objects_${level} OBJECT
      sim/block.cc sim/checker.cc sim/exp2.cc sim/fiber.cc sim/findings.cc sim/global_shadow.cc sim/launch.cc
      sim/memory.cc sim/module.cc sim/tensor_core.cc sim/simd.cc)
    target_include_directories(tessera_sim_objects_${level} SYSTEM PUBLIC ${TESSERA_HIGHWAY_INCLUDE})
    target_compile_options(tessera_sim_objects_${level} PUBLIC ${flags} PRIVATE -O3)
    target_compile_definitions(tessera_sim_objects_${level} PRIVATE TESSERA_ISA="${level}")
    target_link_libraries(tessera_sim_objects_${level} PUBLIC Boost::context Threads::Threads)
    # Whole levels are for speed: as fast as with -O3, and an eighth less to compile. Those that are here to
    # compare bits take half the time to compile, and run two to four times as long.
    set(units ${subset})
    set(optimize -O1)
    if(level IN_LIST whole)
      set(units ${TESSERA_UNITS})
      set(optimize -O2 -fpeel-loops)
    endif()
    add_library(tessera_sim_${level} MODULE ${units})
    target_compile_options(tessera_sim_${level} PRIVATE ${optimize})
    target_link_libraries(tessera_sim_${level} PRIVATE tessera_sim_objects_${level})
    # Nothing but the entry leaves the module, and nothing outside replaces what is in it: an inline function
    # built for one level must never serve another.
    target_link_options(tessera_sim_${level} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/sim/module.map
      -Wl,-Bsymbolic -Wl,--no-undefined)
    set_property(TARGET tessera_sim_${level} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/sim/module.map)
    add_dependencies(tessera_sim_modules tessera_sim_${level})
    list(APPEND modules tessera_sim_${level})
  endforeach()
  set(TESSERA_OWN_ISA ${own} PARENT_SCOPE)
  set(TESSERA_SIM_LEVELS ${levels} PARENT_SCOPE)
  set(TESSERA_SIM_MODULES ${modules} PARENT_SCOPE)
endfunction()

# ---- CUDA

macro(tessera_find_cuda)
  set(TESSERA_HAVE_CUDA OFF)
  if(NOT TESSERA_CUDA STREQUAL OFF)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_ARCHITECTURES 75-virtual)  # every target below sets its own
      enable_language(CUDA)
      # CMake 3.25 knows no C++20 for nvcc.
      if(CMAKE_CUDA_COMPILER_ID STREQUAL NVIDIA AND NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
        set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      endif()
      set(CMAKE_CUDA_STANDARD 20)
      find_package(CUDAToolkit REQUIRED)
      set(TESSERA_HAVE_CUDA ON)
      message(STATUS "CUDA: toolkit ${CUDAToolkit_VERSION}, code for sm_75, sm_89 and sm_90")
    elseif(TESSERA_CUDA STREQUAL ON)
      message(FATAL_ERROR "TESSERA_CUDA is ON and no CUDA compiler was found")
    else()
      message(STATUS "CUDA: no toolkit found; everything but the CUDA part is built")
    endif()
  endif()
endmacro()

function(tessera_cuda_units kernel c dtype dims)
  tessera_write_unit(cuda "${kernel}" "${c}" ${dtype} "${dims}" file)
  list(GET c 1 arch)
  set_property(GLOBAL APPEND PROPERTY TESSERA_UNITS_${arch} ${file})
endfunction()

# Machine code and PTX of each arch in objects of their own: sm_75 code runs on newer cards through its PTX.
function(tessera_add_cuda_instances core)
  tessera_for_each_unit(cuda tessera_cuda_units)
  foreach(arch IN ITEMS 75 89 90)
    if(NOT TESSERA_UNITS_sm_${arch})  # TESSERA_ONLY is another's
      continue()
    endif()
    add_library(tessera_cuda_sm_${arch} OBJECT ${TESSERA_UNITS_sm_${arch}})
    set_target_properties(tessera_cuda_sm_${arch} PROPERTIES CUDA_ARCHITECTURES "${arch}-real;${arch}-virtual")
    target_compile_options(tessera_cuda_sm_${arch} PRIVATE -O3 --fmad=false -lineinfo)
    list(APPEND objects $<TARGET_OBJECTS:tessera_cuda_sm_${arch}>)
  endforeach()
  add_library(tessera_cuda_host OBJECT
    kernels/cuda_backend.cc kernels/cuda_clocks.cc kernels/cuda_timing.cc kernels/cuda_copy.cu kernels/cuda_rate.cu)
  set_target_properties(tessera_cuda_host PROPERTIES CUDA_ARCHITECTURES "75;89;90")
  target_include_directories(tessera_cuda_host SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  list(APPEND objects $<TARGET_OBJECTS:tessera_cuda_host>)
  # Instances register themselves and nothing names them, so a linker would leave them in the archive. As one
  # object with the backend, which the host program does name, they come out with it, wherever it is linked.
  set(whole ${PROJECT_BINARY_DIR}/tessera_cuda.o)
  add_custom_command(OUTPUT ${whole} COMMAND ${CMAKE_LINKER} -r -o ${whole} ${objects} DEPENDS ${objects}
                     COMMENT "Linking the CUDA part into one object" COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${core} PRIVATE ${whole})
  target_link_libraries(${core} PUBLIC CUDA::cudart_static)
endfunction()
