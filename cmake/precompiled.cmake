# Headers that most files include, parsed once for each set of compile options: those of others, and
# of ours what nearly all files of one library include. Reading them is most of the compiler's work.
# With GCC alone: clang wants every option to be that of the headers, so its build (`./dev fuzz`)
# tells which file misses an include, as does FLYT_PRECOMPILE=OFF.
include_guard()

# By default all of them count as headers of others, of which nobody sees warnings.
set(CMAKE_PCH_PROLOGUE "")

set(FLYT_COMMON_HEADERS
  <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map> <memory> <mutex>
  <optional> <span> <string> <string_view> <utility> <vector>)

# flyt_reuse_headers(TARGET KIND [OPTIONS]): KIND is test, outside_test, library or guest, or one of
# the latter two with a folder's own options in front (FLYT_HEADERS_PREFIX); the options are those
# that the targets of this kind add to every target's.
function(flyt_reuse_headers target kind)
  if(NOT FLYT_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if(kind MATCHES "^(library|guest)$")
    set(how HURRIED)
  endif()
  flyt_precompiled_options(${target} ${how})
  set(holder flyt_${kind}_headers)
  if(NOT TARGET ${holder})
    flyt_header_holder(${holder} ${kind} "${how}" ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()

# flyt_own_headers(TARGET [src/a.h ...]): for a target of its own options, or the named headers of
# ours with the others. A change in one of these compiles all of the target again.
function(flyt_own_headers target)
  if(NOT FLYT_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  flyt_precompiled_options(${target} HURRIED)
  # In brackets, they have no path of this checkout, which ccache would take for a difference.
  list(TRANSFORM ARGN REPLACE "(.+)" "<\\1>")
  target_precompile_headers(${target} PRIVATE ${FLYT_COMMON_HEADERS} ${ARGN})
endfunction()

# What is optimised most says that it is.
function(flyt_precompiled_options target)
  target_compile_options(${target} PRIVATE -fpch-preprocess)  # ccache asks for it.
  if("HURRIED" IN_LIST ARGN AND NOT FLYT_SANITIZE)
    # GCC 12 forgets which of them are not ours, and sees overflows in std::string that are none.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow
      -Wno-stringop-overread)
  endif()
endfunction()

# A target of nothing else. What is compiled for a program does not fit libraries.
function(flyt_header_holder holder kind how)
  set(source ${CMAKE_BINARY_DIR}/generated/headers.cc)
  if(kind MATCHES "test$")
    file(CONFIGURE OUTPUT ${source} CONTENT "int main() { return 0; }\n")
    add_executable(${holder} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${holder} PRIVATE GTest::gtest Threads::Threads)
    set_target_properties(${holder} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_precompile_headers(${holder} PRIVATE ${FLYT_COMMON_HEADERS} <gtest/gtest.h> <thread>)
  else()
    file(CONFIGURE OUTPUT ${source}.library.cc CONTENT "// Nothing.\n")
    add_library(${holder} STATIC EXCLUDE_FROM_ALL ${source}.library.cc)
    target_precompile_headers(${holder} PRIVATE ${FLYT_COMMON_HEADERS})
  endif()
  target_compile_options(${holder} PRIVATE ${ARGN})
  flyt_precompiled_options(${holder} ${how})
endfunction()
