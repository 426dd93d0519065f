# find_package(mercury 2.4) gives the target mercury, and mercury_util and na, which are the same
# library. The folder above lib/cmake/mercury is where headers and library are, wherever it was
# moved to.
get_filename_component(_mercury_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

foreach(_mercury_target mercury mercury_util na)
  if(NOT TARGET ${_mercury_target})
    add_library(${_mercury_target} SHARED IMPORTED)
    set_target_properties(${_mercury_target} PROPERTIES
      IMPORTED_LOCATION "${_mercury_prefix}/lib/libmercury.so.2"
      IMPORTED_SONAME "libmercury.so.2"
      INTERFACE_INCLUDE_DIRECTORIES "${_mercury_prefix}/include")
  endif()
endforeach()

set(MERCURY_INCLUDE_DIR "${_mercury_prefix}/include")
set(MERCURY_LIBRARIES mercury)
set(mercury_FOUND TRUE)
unset(_mercury_prefix)
unset(_mercury_target)
