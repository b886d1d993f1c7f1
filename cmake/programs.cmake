# The programs. A folder without sources makes no program.

# What all programs share and the library does not have.
file(GLOB sources CONFIGURE_DEPENDS src/programs/*.c)
add_library(gradus_program_parts STATIC EXCLUDE_FROM_ALL ${sources} ${platform_sources})
set_target_properties(gradus_program_parts PROPERTIES C_EXTENSIONS OFF)
target_include_directories(gradus_program_parts PUBLIC . src PRIVATE include)
target_link_libraries(gradus_program_parts PRIVATE gradus_flags gradus_small_frames)
if(WIN32)
    target_link_libraries(gradus_program_parts PUBLIC ntdll)
endif()

function(gradus_program name)
    if(NOT ARGN)
        return()
    endif()
    add_executable(${name} ${ARGN})
    set_target_properties(${name} PROPERTIES C_EXTENSIONS OFF)
    target_link_libraries(${name} PRIVATE gradus_program_parts gradus_static gradus_flags
                                          gradus_small_frames)
    set_property(GLOBAL APPEND PROPERTY gradus_programs ${name})
endfunction()

file(GLOB sources CONFIGURE_DEPENDS src/gradcheck/main.c)
gradus_program(gradus-gradcheck ${sources})

# train/cli/gradus_NAME.c is the main of gradus-NAME; the other files are parts that all share.
if(GRADUS_TRAIN OR GRADUS_TESTS OR GRADUS_BENCH)
    file(GLOB sources CONFIGURE_DEPENDS train/*/*.c)
    file(GLOB mains CONFIGURE_DEPENDS train/cli/gradus_*.c)
    set(other_launch launch_none)
    if(WIN32)
        set(other_launch launch_start)
    endif()
    list(REMOVE_ITEM sources ${mains} ${PROJECT_SOURCE_DIR}/train/run/${other_launch}.c)
    add_library(gradus_train_parts OBJECT ${sources})
    set_target_properties(gradus_train_parts PROPERTIES C_EXTENSIONS OFF)
    target_include_directories(
        gradus_train_parts
        PUBLIC train/text train/model train/run train/cli
        PRIVATE $<TARGET_PROPERTY:gradus_static,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(gradus_train_parts PUBLIC gradus_program_parts
                          PRIVATE gradus_flags gradus_small_frames)
    if(gradus_jansson)
        target_compile_definitions(gradus_train_parts PUBLIC GD_HAVE_JANSSON)
        target_include_directories(gradus_train_parts SYSTEM PUBLIC ${GRADUS_JANSSON_INCLUDE})
        target_link_libraries(gradus_train_parts PUBLIC ${GRADUS_JANSSON_LIBRARY})
    endif()
    if(gradus_xxhash)
        target_compile_definitions(gradus_train_parts PUBLIC GD_HAVE_XXHASH)
        target_include_directories(gradus_train_parts SYSTEM PRIVATE ${GRADUS_XXHASH_INCLUDE})
    endif()
    if(NOT GRADUS_TRAIN)
        set(mains)
    endif()
    foreach(main IN LISTS mains)
        get_filename_component(name ${main} NAME_WE)
        string(REPLACE "_" "-" name ${name})
        gradus_program(${name} ${main})
        target_link_libraries(${name} PRIVATE gradus_train_parts)
    endforeach()
endif()

# For a program with .cu files of its own.
function(gradus_compile_cuda name)
    set_target_properties(${name} PROPERTIES CUDA_STANDARD 17)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${gradus_cuda_flags}>)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/kernels
                                               ${PROJECT_SOURCE_DIR}/kernels/common)
    target_link_libraries(${name} PRIVATE CUDA::cudart_static)
endfunction()

if(GRADUS_BENCH)
    file(GLOB sources CONFIGURE_DEPENDS bench/*.c)
    if(gradus_cuda)
        list(FILTER sources EXCLUDE REGEX "/(no_cuda|clock_cpu)\\.c$")
        list(APPEND sources bench/rms_norm_cuda.cu bench/rms_norm_ladder.cu bench/products_cuda.cu
             kernels/rms_norm/ladder.cu)
    else()
        list(FILTER sources EXCLUDE REGEX "/clock_cuda\\.c$")
    endif()
    gradus_program(gradus-bench ${sources})
    target_link_libraries(gradus-bench PRIVATE gradus_train_parts)
    if(gradus_cuda)
        gradus_compile_cuda(gradus-bench)
    endif()
endif()

if(GRADUS_EXAMPLES)
    file(GLOB sources CONFIGURE_DEPENDS docs/examples/*.c bench/twins/*.c)
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

    # docs/exercises/NAME.c with a wrong backward, and with the right one.
    file(GLOB sources CONFIGURE_DEPENDS docs/exercises/*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        foreach(program IN ITEMS exercise solution)
            set(folder docs/exercises)
            if(program STREQUAL "solution")
                set(folder docs/exercises/solutions)
            endif()
            add_executable(${program}_${name} ${source})
            set_target_properties(
                ${program}_${name}
                PROPERTIES C_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY
                                            ${PROJECT_BINARY_DIR}/bin/exercises)
            target_include_directories(${program}_${name} PRIVATE ${folder})
            target_link_libraries(${program}_${name} PRIVATE gradus_static gradus_flags)
        endforeach()
        set_property(GLOBAL APPEND PROPERTY gradus_exercises ${name})
    endforeach()
endif()
