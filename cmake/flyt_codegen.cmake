# Runs the generator over api/ and tells targets about what it writes.
include_guard()

find_package(Python3 3.9 COMPONENTS Interpreter REQUIRED)
set(FLYT_GEN ${CMAKE_BINARY_DIR}/generated)
set(flyt_generate ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/codegen/generate.py --out ${FLYT_GEN})

file(GLOB flyt_api_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/api/*/*.api)
file(GLOB flyt_generator_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/codegen/*.py)

# The list of files depends on the generator and the names of the .api files alone. Generating now
# too lets tools that read compile commands work before the first build.
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${flyt_generator_files})
execute_process(COMMAND ${flyt_generate} --list
  OUTPUT_VARIABLE flyt_generated_list RESULT_VARIABLE flyt_generate_result
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(flyt_generate_result)
  message(FATAL_ERROR "codegen/generate.py refused the description; see the error above")
endif()
string(REPLACE "\n" ";" flyt_generated_list "${flyt_generated_list}")
# Seeds come and go with commands; nothing is built from them.
list(FILTER flyt_generated_list EXCLUDE REGEX "^seeds/")
list(TRANSFORM flyt_generated_list PREPEND ${FLYT_GEN}/)

# Unchanged files are not rewritten, so that ninja rebuilds only what follows from a change.
add_custom_command(
  OUTPUT ${FLYT_GEN}/stamp
  BYPRODUCTS ${flyt_generated_list}
  COMMAND ${flyt_generate} --stamp ${FLYT_GEN}/stamp
  DEPENDS ${flyt_api_files} ${flyt_generator_files} ${CMAKE_SOURCE_DIR}/api/api.lock
  COMMENT "Generating code from api/"
  VERBATIM)
add_custom_target(flyt_generated DEPENDS ${FLYT_GEN}/stamp)

# flyt_use_generated(TARGET): the target may include "cuda/types.h", "commands/event.h", ...
function(flyt_use_generated target)
  target_include_directories(${target} PUBLIC ${FLYT_GEN})
  add_dependencies(${target} flyt_generated)
endfunction()

# flyt_generated_sources(VARIABLE PART): the generated .cc files below one folder: client, server,
# commands, driver, softgpu, cuda.
function(flyt_generated_sources variable part)
  set(sources ${flyt_generated_list})
  list(FILTER sources INCLUDE REGEX "^${FLYT_GEN}/${part}/[^/]*\\.cc$")
  set_source_files_properties(${sources} PROPERTIES GENERATED TRUE)
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# flyt_export_abi(TARGET PART): a shared library that shows exactly the described functions (PART is
# client or softgpu), and whose own calls stay inside it, whatever else the process has loaded.
function(flyt_export_abi target part)
  set(map ${FLYT_GEN}/${part}/exports.map)
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${map} -Wl,-Bsymbolic)
  if(NOT FLYT_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
  add_dependencies(${target} flyt_generated)
endfunction()
