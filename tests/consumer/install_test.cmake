# SPDX-License-Identifier: Apache-2.0
# Installs the build in BUILD afresh, then configures, builds and runs this folder's project against it.
set(prefix ${BUILD}/installed)
set(consumer ${BUILD}/consumer)
file(REMOVE_RECURSE ${prefix} ${consumer})

macro(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endmacro()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${consumer} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${consumer})
set(clean ${CMAKE_COMMAND} -E env --unset=TESSERA_MODULES)
run(${clean} ${consumer}/consumer_c)
run(${clean} ${consumer}/consumer_cpp)
run(${clean} ${prefix}/bin/tessera run --q-len 20)
