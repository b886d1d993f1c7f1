# Copies of the float64 kernels in which the faults of kernels/NAME/planted.def are planted, for gradcheck
# to find: gradus_planted are their objects, which stand in for the library's, and gradus_planted_lines
# is the table (tests/gradcheck/plant.awk).

find_program(GRADUS_AWK awk REQUIRED)
mark_as_advanced(GRADUS_AWK)
file(GLOB planted_rows CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*/planted.def)
set(planted_folder ${PROJECT_BINARY_DIR}/planted)
set(planted_sources)
set(planted_outputs)
set(planted_kernels)
foreach(rows IN LISTS planted_rows)
    get_filename_component(folder ${rows} DIRECTORY)
    get_filename_component(op ${folder} NAME)
    file(MAKE_DIRECTORY ${planted_folder}/kernels/${op})
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.h ${folder}/*.def ${folder}/*_cpu.c)
    list(FILTER sources EXCLUDE REGEX "/(test[^/]*|planted)\\.[a-z]+$")
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME)
        list(APPEND planted_outputs ${planted_folder}/kernels/${op}/${name})
        if(name MATCHES "_cpu\\.c$")
            list(APPEND planted_kernels ${planted_folder}/kernels/${op}/${name})
        endif()
    endforeach()
    list(APPEND planted_sources ${sources})
endforeach()
set(gradus_planted_lines ${planted_folder}/planted_lines.c)
add_custom_command(
    OUTPUT ${gradus_planted_lines} ${planted_outputs}
    COMMAND ${GRADUS_AWK} -v out=${planted_folder} -f
            ${PROJECT_SOURCE_DIR}/tests/gradcheck/plant.awk ${planted_rows} ${planted_sources}
    DEPENDS ${planted_rows} ${planted_sources} ${PROJECT_SOURCE_DIR}/tests/gradcheck/plant.awk
    COMMENT "Planting faults"
    VERBATIM)

# Sources compiled as the library's float64 kernels are.
function(gradus_float64_objects target)
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${ARGN})
    foreach(property IN ITEMS COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_LIBRARIES
                              POSITION_INDEPENDENT_CODE C_EXTENSIONS C_VISIBILITY_PRESET)
        get_target_property(value gradus_objects_f64 ${property})
        if(NOT value MATCHES "-NOTFOUND$")
            set_target_properties(${target} PROPERTIES ${property} "${value}")
        endif()
    endforeach()
endfunction()

gradus_float64_objects(gradus_planted ${planted_kernels})
target_include_directories(gradus_planted BEFORE PRIVATE ${planted_folder}/kernels)
