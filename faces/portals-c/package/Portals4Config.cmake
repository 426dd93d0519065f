# find_package(Portals4 4.3) gives the target Portals4::portals. The folder above lib/cmake/Portals4
# is where headers and library are, wherever it was moved to.
get_filename_component(_portals4_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET Portals4::portals)
  add_library(Portals4::portals SHARED IMPORTED)
  set_target_properties(Portals4::portals PROPERTIES
    IMPORTED_LOCATION "${_portals4_prefix}/lib/libportals.so.4"
    IMPORTED_SONAME "libportals.so.4"
    INTERFACE_INCLUDE_DIRECTORIES "${_portals4_prefix}/include")
endif()

set(Portals4_FOUND TRUE)
unset(_portals4_prefix)
