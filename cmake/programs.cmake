# The programs. A folder without sources makes no program.

function(gradus_program name)
    if(NOT ARGN)
        return()
    endif()
    add_executable(${name} ${ARGN})
    set_target_properties(${name} PROPERTIES C_EXTENSIONS OFF)
    target_link_libraries(${name} PRIVATE gradus_static gradus_flags)
    set_property(GLOBAL APPEND PROPERTY gradus_programs ${name})
endfunction()

file(GLOB sources CONFIGURE_DEPENDS src/gradcheck/main.c)
gradus_program(gradus-gradcheck ${sources})

if(GRADUS_TRAIN)
    file(GLOB sources CONFIGURE_DEPENDS train/*.c)
    gradus_program(gradus-train ${sources})
endif()

if(GRADUS_BENCH)
    file(GLOB sources CONFIGURE_DEPENDS bench/*.c)
    gradus_program(gradus-bench ${sources})
endif()

if(GRADUS_EXAMPLES)
    file(GLOB sources CONFIGURE_DEPENDS docs/examples/*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        add_executable(example_${name} ${source})
        set_target_properties(
            example_${name}
            PROPERTIES C_EXTENSIONS OFF OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY
                                                           ${PROJECT_BINARY_DIR}/bin/examples)
        target_link_libraries(example_${name} PRIVATE gradus_static gradus_flags)
        set_property(GLOBAL APPEND PROPERTY gradus_examples ${name})
    endforeach()
endif()
