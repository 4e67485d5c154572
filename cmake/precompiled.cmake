# Headers of others that most files include, parsed once for each set of compile options. The
# release build does that for tests alone, so that it tells which library's file misses an include.
include_guard()

set(FLYT_PRECOMPILE_LIBRARIES ${FLYT_SANITIZE})
set(FLYT_COMMON_HEADERS
  <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map> <memory> <mutex>
  <optional> <span> <string> <string_view> <utility> <vector>)

# flyt_reuse_headers(TARGET KIND [OPTIONS]): KIND is test, library or guest; the options are those
# that the targets of this kind add to every target's.
function(flyt_reuse_headers target kind)
  if(NOT FLYT_PRECOMPILE)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # ccache asks for it.
  endif()
  set(holder flyt_${kind}_headers)
  if(NOT TARGET ${holder})
    flyt_header_holder(${holder} ${kind} ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()

# A target of nothing else. What is compiled for a program does not fit libraries.
function(flyt_header_holder holder kind)
  set(source ${CMAKE_BINARY_DIR}/generated/headers.cc)
  if(kind STREQUAL "test")
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
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${holder} PRIVATE -fpch-preprocess)
  endif()
endfunction()
