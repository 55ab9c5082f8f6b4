# SPDX-License-Identifier: Apache-2.0
# Every dependency: installed packages first (Debian's are enough), a pinned download where there is none.
include(FetchContent)
find_package(Threads REQUIRED)

FetchContent_Declare(nlohmann_json
  URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  FIND_PACKAGE_ARGS)
FetchContent_MakeAvailable(nlohmann_json)
if(TESSERA_CLI)
  FetchContent_Declare(fmt
    URL https://github.com/fmtlib/fmt/releases/download/10.2.1/fmt-10.2.1.zip
    FIND_PACKAGE_ARGS)
  FetchContent_Declare(CLI11
    URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    FIND_PACKAGE_ARGS)
  FetchContent_MakeAvailable(fmt CLI11)
endif()

set(Boost_USE_STATIC_LIBS ON)  # of its library we use a few lines of assembly; a module carries them along
find_package(Boost 1.74 REQUIRED COMPONENTS context)

# Highway: its headers are all we use (static dispatch at a module's own level).
find_path(TESSERA_HIGHWAY_INCLUDE hwy/highway.h)
if(NOT TESSERA_HIGHWAY_INCLUDE)
  FetchContent_Declare(highway URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz)
  FetchContent_Populate(highway)
  set(TESSERA_HIGHWAY_INCLUDE ${highway_SOURCE_DIR} CACHE PATH "" FORCE)
endif()

if(TESSERA_TESTS)
  FetchContent_Declare(GTest
    URL https://github.com/google/googletest/releases/download/v1.15.2/googletest-1.15.2.tar.gz
    FIND_PACKAGE_ARGS)
  FetchContent_Declare(benchmark
    URL https://github.com/google/benchmark/archive/refs/tags/v1.9.0.tar.gz
    FIND_PACKAGE_ARGS)
  FetchContent_MakeAvailable(GTest benchmark)

  # The tests in Python: .venv, where make has made one, has the packages they need.
  if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python3)
    set(TESSERA_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python3)
  else()
    find_program(TESSERA_PYTHON python3)
  endif()
endif()
