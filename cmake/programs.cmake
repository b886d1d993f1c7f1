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
    if(gradus_jansson)
        target_compile_definitions(gradus-train PRIVATE GD_HAVE_JANSSON)
        target_include_directories(gradus-train SYSTEM PRIVATE ${GRADUS_JANSSON_INCLUDE})
        target_link_libraries(gradus-train PRIVATE ${GRADUS_JANSSON_LIBRARY})
    endif()
endif()

if(GRADUS_BENCH)
    file(GLOB sources CONFIGURE_DEPENDS bench/*.c)
    gradus_program(gradus-bench ${sources})
endif()

# What needs nvcc: the benchmark of the CUDA kernels, and their test (which skips itself where there
# is no GPU).
function(gradus_cuda_program name)
    add_executable(${name} ${ARGN})
    set_target_properties(${name} PROPERTIES CUDA_STANDARD 17)
    target_compile_options(
        ${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${gradus_cuda_flags}>)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/kernels)
    target_link_libraries(${name} PRIVATE gradus_internal CUDA::cudart_static)
endfunction()

if(gradus_cuda AND GRADUS_BENCH)
    gradus_cuda_program(gradus-bench-cuda bench/rms_norm_cuda.cu kernels/rms_norm/ladder.cu)
    set_property(GLOBAL APPEND PROPERTY gradus_programs gradus-bench-cuda)
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
