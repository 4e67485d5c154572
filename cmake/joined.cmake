# Sources compiled several at a time: a file that includes them stands for them. What each would
# read and instantiate for itself is most of the compiler's work. Their names at file scope meet
# then: a clash is an error, and is mended by a better name or by AFRESH.
# With GCC alone: clang's build (`./dev fuzz`) tells which file does not stand alone, and so does
# FLYT_JOIN=OFF.
include_guard()

# How many at most: some seconds of the compiler's, since a change of one costs all of them. It is
# no limit of size, by which each checkout would join what its files' sizes were when it was
# configured.
set(FLYT_JOINED_MAX 16)
set(FLYT_JOINED_GENERATED_MAX 32)
# A folder's last ones, where they are fewer than this, are joined with the next folder's.
set(FLYT_JOINED_MIN 8)

# flyt_join(VARIABLE TARGET SOURCES a.cc ... AFRESH b.cc ...): sets VARIABLE to what TARGET is to be
# made from. Nothing is joined that has options of its own.
# AFRESH: sources that have a name of one before them; another file begins with each.
function(flyt_join variable target)
  cmake_parse_arguments(ARG "" "" "SOURCES;AFRESH" ${ARGN})
  if(NOT FLYT_JOIN OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(${variable} ${ARG_SOURCES} PARENT_SCOPE)
    return()
  endif()
  set(afresh)
  foreach(source ${ARG_AFRESH})
    get_filename_component(path ${source} ABSOLUTE)
    list(APPEND afresh ${path})
  endforeach()
  set(made)
  set(folders)
  foreach(source ${ARG_SOURCES})
    get_filename_component(path ${source} ABSOLUTE)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options OR NOT path MATCHES "\\.cc$"
        OR NOT path MATCHES "^(${CMAKE_SOURCE_DIR}/(src|tests|bench|codegen)|${FLYT_GEN})/")
      list(APPEND made ${source})
    else()
      get_filename_component(folder ${path} DIRECTORY)
      string(MAKE_C_IDENTIFIER ${folder} folder)
      list(APPEND folders ${folder})
      list(APPEND in_${folder} ${path})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(number 0)
  set(batch)
  set(generated)
  foreach(folder ${folders})
    set(before "${generated}")
    string(REGEX MATCH "^${FLYT_GEN}/" generated "${in_${folder}}")
    set(max ${FLYT_JOINED_MAX})
    if(generated)
      set(max ${FLYT_JOINED_GENERATED_MAX})
    endif()
    list(LENGTH batch count)
    if(count GREATER_EQUAL FLYT_JOINED_MIN OR NOT generated STREQUAL before)
      flyt_end_batch()
    endif()
    foreach(path ${in_${folder}})
      list(LENGTH batch count)
      if(path IN_LIST afresh OR count EQUAL max)
        flyt_end_batch()
      endif()
      list(APPEND batch ${path})
    endforeach()
  endforeach()
  flyt_end_batch()
  set(${variable} ${made} PARENT_SCOPE)
endfunction()

# In flyt_join: what is in `batch` is one file of `made`, and `batch` is empty.
macro(flyt_end_batch)
  if(batch)
    flyt_write_joined(source ${target}_${number} ${batch})
    list(APPEND made ${source})
    math(EXPR number "${number} + 1")
    set(batch)
  endif()
endmacro()

# flyt_write_joined(VARIABLE NAME a.cc ...): sets VARIABLE to the file that includes these, or to
# the only one. Its text has no path of this checkout, which ccache would take for a difference.
function(flyt_write_joined variable name)
  set(${variable} ${ARGN} PARENT_SCOPE)
  list(LENGTH ARGN count)
  if(count EQUAL 1)
    return()
  endif()
  set(lines)
  foreach(path ${ARGN})
    string(REGEX REPLACE "^${FLYT_GEN}/" "../" path ${path})
    string(REGEX REPLACE "^${CMAKE_SOURCE_DIR}/(src/)?" "" path ${path})
    string(APPEND lines "#include \"${path}\"\n")
  endforeach()
  set(joined ${FLYT_GEN}/joined/${name}.cc)
  file(CONFIGURE OUTPUT ${joined} CONTENT "${lines}")
  # GCC takes for a header's whatever is not in the file that it was called with.
  set_source_files_properties(${joined} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
  set(${variable} ${joined} PARENT_SCOPE)
endfunction()
