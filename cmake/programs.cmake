# The programs. A folder without sources makes no program.

# What all programs share, and parts that the library has, too.
file(GLOB sources CONFIGURE_DEPENDS src/programs/*.c)
list(APPEND sources src/files/file_kind.c src/files/json_text.c src/files/utf8.c)
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
if(TARGET gradus-gradcheck) # what --load opens calls the library in the program
    set_target_properties(gradus-gradcheck PROPERTIES ENABLE_EXPORTS ON)
endif()

# train/cli/gradus_NAME.c is the main of gradus-NAME; the other files are parts that all share. Windows has
# neither these programs nor gradus-bench.
if(NOT WIN32 AND (GRADUS_TRAIN OR GRADUS_TESTS OR GRADUS_BENCH))
    file(GLOB sources CONFIGURE_DEPENDS train/*/*.c)
    file(GLOB mains CONFIGURE_DEPENDS train/cli/gradus_*.c)
    list(REMOVE_ITEM sources ${mains})
    add_library(gradus_train_parts OBJECT ${sources})
    set_target_properties(gradus_train_parts PROPERTIES C_EXTENSIONS OFF)
    target_include_directories(
        gradus_train_parts
        PUBLIC train/text train/model train/run train/cli
        PRIVATE $<TARGET_PROPERTY:gradus_static,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(gradus_train_parts PUBLIC gradus_program_parts
                          PRIVATE gradus_flags gradus_small_frames)
    if(gradus_jansson)
        target_sources(gradus_train_parts PRIVATE src/files/json.c)
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

if(GRADUS_BENCH AND NOT WIN32)
    file(GLOB sources CONFIGURE_DEPENDS bench/*.c)
    if(gradus_cuda)
        list(FILTER sources EXCLUDE REGEX "/(no_cuda|clock_cpu)\\.c$")
        list(APPEND sources bench/rms_norm_cuda.cu bench/rms_norm_ladder.cu
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

    # An op in a shared object, whose functions of the library are those of gradus-gradcheck.
    if(NOT WIN32 AND TARGET gradus-gradcheck)
        add_library(example_op_cube MODULE docs/examples/ops/cube.c)
        set_target_properties(
            example_op_cube
            PROPERTIES C_EXTENSIONS OFF PREFIX "" SUFFIX ".so" OUTPUT_NAME cube
                       LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/examples)
        target_include_directories(example_op_cube PRIVATE include)
        target_link_libraries(example_op_cube PRIVATE gradus-gradcheck gradus_flags)
    endif()
endif()
