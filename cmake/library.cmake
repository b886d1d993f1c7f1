# The library: compiled once as position-independent objects, from which come
#   gradus           libgradus.so, which shows what is marked GD_API
#   gradus_static    libgradus.a, the same in one object, everything else made local
#   gradus_internal  an archive with all symbols, for our own tests

file(GLOB core_sources CONFIGURE_DEPENDS src/core/*.c src/cpu/*.c src/cuda/*.c src/files/*.c
     src/gradcheck/*.c src/gradcheck/diagnose/*.c src/gradients/*.c src/group/*.c
     src/inspect/*.c src/optim/*.c src/recompute/*.c src/tensors/*.c)
file(GLOB op_sources CONFIGURE_DEPENDS kernels/*.c kernels/*/*.c)
file(GLOB real_sources CONFIGURE_DEPENDS kernels/*/*_cpu.c)
file(GLOB cuda_sources CONFIGURE_DEPENDS kernels/*.cu kernels/*/*.cu src/cuda/*_cuda.c src/cuda/*.cu
     src/group/*_cuda.c)
list(FILTER cuda_sources EXCLUDE REGEX "/ladder.*\\.cu$") # for study, in the benchmark alone
# In an op's folder lie its tests, too.
list(FILTER op_sources EXCLUDE REGEX "/test[^/]*\\.c$")
list(FILTER cuda_sources EXCLUDE REGEX "/cuda_[^/]*\\.cu$")
file(GLOB hopper_sources CONFIGURE_DEPENDS kernels/*/*_hopper.cu)
list(REMOVE_ITEM cuda_sources ${hopper_sources})
list(REMOVE_ITEM core_sources ${PROJECT_SOURCE_DIR}/src/gradcheck/main.c ${cuda_sources})
if(NOT gradus_jansson)
    list(REMOVE_ITEM core_sources ${PROJECT_SOURCE_DIR}/src/files/json.c)
endif()
if(gradus_cuda STREQUAL "KERNELS")
    # The kernels on raw pointers and the core need nothing of each other: contexts have no GPU.
    list(FILTER cuda_sources INCLUDE REGEX "/kernels/rms_norm/|/device_limits_cuda\\.cu$")
    list(FILTER op_sources EXCLUDE REGEX "/rms_norm_no_cuda\\.c$")
    set(hopper_sources)
endif()

# platform/NAME_SYSTEM.c, and slabs.c and number.c of all. Elsewhere than on POSIX there are only groups of
# one.
file(GLOB platform_sources CONFIGURE_DEPENDS platform/*.c)
if(UNIX)
    list(FILTER platform_sources INCLUDE REGEX "(_posix|/slabs|/number)\\.c$")
    list(REMOVE_ITEM core_sources ${PROJECT_SOURCE_DIR}/src/group/group_none.c)
else()
    if(WIN32)
        list(FILTER platform_sources INCLUDE REGEX "(_windows|/slabs|/number)\\.c$")
    else() # WebAssembly
        list(FILTER platform_sources INCLUDE REGEX
             "/(clock|memory|number|file|terminal)_posix\\.c$|/(process_none|slabs|number)\\.c$")
    endif()
    list(FILTER core_sources EXCLUDE REGEX "/src/group/group_(files|watch|meet|cpu)\\.c$")
endif()

# The list of ops, of the records in the folders.
file(GLOB op_tables CONFIGURE_DEPENDS kernels/*/*.def)
set(generated ${PROJECT_BINARY_DIR}/generated)
set(record_sources ${op_sources} ${op_tables})
list(FILTER record_sources EXCLUDE REGEX "_cpu\\.c$|/planted\\.def$")
add_custom_command(
    OUTPUT ${generated}/op_list.h
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${generated}/op_list.h "-DSOURCES=${record_sources}" -P
            ${PROJECT_SOURCE_DIR}/cmake/ops.cmake
    DEPENDS ${record_sources} ${PROJECT_SOURCE_DIR}/cmake/ops.cmake
    VERBATIM)

# A tile (kernels/matmul/tile.h) fills the registers. GCC for ARM would load all of a tile's factors
# first, and keep sums in memory for it (for x86 this pass is off anyway).
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(
        kernels/matmul/gemm_cpu.c kernels/attention/attention_forward_cpu.c
        kernels/attention/attention_backward_cpu.c PROPERTIES COMPILE_OPTIONS -fno-schedule-insns)
endif()

# A call of an op takes a tenth of a microsecond: there only buffers of bytes have a guard behind them,
# as those of messages. What reads files and messages of others has more (flags.cmake).
if(gradus_link_hardened)
    set(quick_sources ${core_sources} ${op_sources})
    list(FILTER quick_sources INCLUDE REGEX "/(src/core|src/cpu|src/gradients|src/optim|src/recompute|src/tensors|kernels)/")
    set_property(SOURCE ${quick_sources} APPEND PROPERTY COMPILE_OPTIONS -fstack-protector)
endif()

# *_cpu.c is written on REAL: float here ...
add_library(gradus_objects OBJECT ${core_sources} ${op_sources} ${platform_sources}
                                  ${generated}/op_list.h)
target_include_directories(gradus_objects PRIVATE ${generated})
# ... and double here.
set(gradus_object_libraries gradus_objects)
if(real_sources)
    add_library(gradus_objects_f64 OBJECT ${real_sources})
    target_compile_definitions(gradus_objects_f64 PRIVATE GD_REAL_DOUBLE)
    list(APPEND gradus_object_libraries gradus_objects_f64)
endif()

# What the library links with: as targets in this build, and in plain words (-lopenblas) for those
# who link with the installed static library, by CMake or by pkg-config.
set(gradus_link_targets)
set(gradus_link_words)
if(GRADUS_BLAS)
    list(APPEND gradus_link_targets BLAS::BLAS)
    list(APPEND gradus_link_words ${BLAS_LINKER_FLAGS} ${BLAS_LIBRARIES})
endif()
if(gradus_jansson)
    list(APPEND gradus_link_targets ${GRADUS_JANSSON_LIBRARY})
    list(APPEND gradus_link_words ${GRADUS_JANSSON_LIBRARY})
endif()
if(OpenMP_C_FOUND)
    list(APPEND gradus_link_targets OpenMP::OpenMP_C)
    list(APPEND gradus_link_words ${OpenMP_C_LIBRARIES})
endif()
if(WIN32)
    list(APPEND gradus_link_targets ntdll) # files relative to a folder
    list(APPEND gradus_link_words ntdll)
endif()

# Compiles kernels into a library of objects.
function(gradus_cuda_objects target)
    add_library(${target} OBJECT ${ARGN})
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_VISIBILITY_PRESET hidden)
    # Without what would need the C++ runtime: the library is linked as C. And without unique symbols,
    # which objcopy does not hide.
    target_compile_options(
        ${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${gradus_cuda_flags}
                          -Xcompiler=-fno-exceptions,-fno-rtti,-fno-threadsafe-statics>
                          $<$<C_COMPILER_ID:GNU>:$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-gnu-unique>>)
    target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endfunction()

if(gradus_cuda AND cuda_sources)
    gradus_cuda_objects(gradus_objects_cuda ${cuda_sources})
    list(APPEND gradus_object_libraries gradus_objects_cuda)
    list(APPEND gradus_link_targets CUDA::cudart_static)
    list(APPEND gradus_link_words -L${CUDAToolkit_LIBRARY_DIR})
    list(JOIN CMAKE_CUDA_ARCHITECTURES "," code)
    set_source_files_properties(src/cuda/cuda_code.c PROPERTIES COMPILE_DEFINITIONS
                                                           GD_CUDA_CODE="${code}")
    if(NOT gradus_cuda STREQUAL "KERNELS")
        target_compile_definitions(gradus_objects PRIVATE GD_HAVE_CUDA)
        list(APPEND gradus_link_targets CUDA::cublasLt CUDA::curand)
        list(APPEND gradus_link_words cublasLt curand)
        if(gradus_nccl)
            target_compile_definitions(gradus_objects_cuda PRIVATE GD_HAVE_NCCL)
            target_include_directories(gradus_objects_cuda SYSTEM PRIVATE ${GRADUS_NCCL_INCLUDE})
            list(APPEND gradus_link_targets ${GRADUS_NCCL_LIBRARY})
            list(APPEND gradus_link_words ${GRADUS_NCCL_LIBRARY})
        endif()
    endif()
    list(APPEND gradus_link_words cudart_static rt pthread)
    # *_hopper.cu has instructions of sm_90a, which runs on compute capability 9.0 alone. Where that
    # is not built for, the kernels for any GPU do the work.
    if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "(^|;)(90|all)" AND hopper_sources)
        gradus_cuda_objects(gradus_objects_hopper ${hopper_sources})
        set_target_properties(gradus_objects_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
        target_compile_definitions(gradus_objects_cuda PRIVATE GD_HAVE_HOPPER)
        list(APPEND gradus_object_libraries gradus_objects_hopper)
    endif()
endif()

list(APPEND gradus_link_targets ${CMAKE_DL_LIBS}) # for gradus-gradcheck --load
list(APPEND gradus_link_words ${CMAKE_DL_LIBS})

# The linker's own, by its name: a search by CMake finds that of this machine when another is built
# for.
include(CheckLibraryExists)
check_library_exists(m pow "" GRADUS_HAVE_LIBM)
set(gradus_link_public "") # programs link with it, too: most that train something call exp or sqrt
if(GRADUS_HAVE_LIBM)
    set(gradus_link_public m)
endif()

# A library in one of the linker's own folders goes by its name, any other by its path.
set(words "")
foreach(library IN LISTS gradus_link_words)
    cmake_path(GET library PARENT_PATH directory)
    cmake_path(GET library FILENAME name)
    if(directory IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES AND name MATCHES "^lib(.+)\\.(so|a)$")
        list(APPEND words -l${CMAKE_MATCH_1})
    elseif(name MATCHES "^(.+)\\.framework$")
        list(APPEND words -Wl,-framework,${CMAKE_MATCH_1})
    elseif(directory OR library MATCHES "^-")
        list(APPEND words ${library})
    else()
        list(APPEND words -l${library})
    endif()
endforeach()
list(REMOVE_DUPLICATES words)
set(gradus_link_words ${words})

get_property(shared_libraries GLOBAL PROPERTY TARGET_SUPPORTS_SHARED_LIBS) # WebAssembly: no
foreach(objects IN LISTS gradus_object_libraries)
    set_target_properties(
        ${objects} PROPERTIES POSITION_INDEPENDENT_CODE ${shared_libraries} C_VISIBILITY_PRESET hidden
                              C_EXTENSIONS OFF LINKER_LANGUAGE C)
    target_include_directories(
        ${objects} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include
                           ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/kernels/common)
    target_include_directories(
        ${objects} SYSTEM PRIVATE ${GRADUS_RANDOM123_INCLUDE})
    if(GRADUS_BLAS)
        target_include_directories(${objects} SYSTEM PRIVATE ${GRADUS_CBLAS_INCLUDE})
        target_compile_definitions(${objects} PRIVATE GD_HAVE_BLAS)
    endif()
    if(gradus_jansson)
        target_include_directories(${objects} SYSTEM PRIVATE ${GRADUS_JANSSON_INCLUDE})
        target_compile_definitions(${objects} PRIVATE GD_HAVE_JANSSON)
    endif()
    target_link_libraries(${objects} PRIVATE gradus_flags gradus_small_frames)
    if(GRADUS_BLAS AND GRADUS_HAVE_OPENBLAS)
        target_compile_definitions(${objects} PRIVATE GD_HAVE_OPENBLAS)
    endif()
    list(APPEND gradus_object_files $<TARGET_OBJECTS:${objects}>)
endforeach()

# What all three have in common. Headers are included as "gradus/...h".
function(gradus_library target)
    target_include_directories(
        ${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    foreach(item IN LISTS gradus_link_targets)
        target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${item}>)
    endforeach()
    foreach(item IN LISTS gradus_link_words)
        target_link_libraries(${target} PRIVATE $<INSTALL_INTERFACE:${item}>)
    endforeach()
    target_link_libraries(${target} PUBLIC ${gradus_link_public})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
    if(GRADUS_SANITIZE)
        target_link_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${GRADUS_SANITIZE}>)
    endif()
endfunction()

if(shared_libraries)
    add_library(gradus SHARED ${gradus_object_files})
    add_library(gradus::gradus ALIAS gradus)
    gradus_library(gradus)
    set_target_properties(
        gradus PROPERTIES VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF" AND NOT GRADUS_SANITIZE)
        target_link_options(gradus PRIVATE -Wl,--no-undefined)
    endif()
    target_link_options(gradus PRIVATE ${gradus_link_hardened})
endif()

# Hidden symbols are still seen by the linker inside an archive. So link the objects into one, and
# make local what is hidden there; without objcopy (not on ELF) they stay visible.
if(CMAKE_OBJCOPY AND CMAKE_LINKER AND CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
    set(one_object ${PROJECT_BINARY_DIR}/gradus_static-$<CONFIG>${CMAKE_C_OUTPUT_EXTENSION})
    add_custom_command(
        OUTPUT ${one_object}
        COMMAND ${CMAKE_LINKER} -r -o ${one_object} ${gradus_object_files}
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${one_object}
        DEPENDS ${gradus_object_libraries} ${gradus_object_files}
        COMMENT "Linking the static library into one object"
        COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${one_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    add_library(gradus_static STATIC ${one_object})
else()
    add_library(gradus_static STATIC ${gradus_object_files})
endif()
add_library(gradus::gradus_static ALIAS gradus_static)
gradus_library(gradus_static)
set_target_properties(gradus_static PROPERTIES OUTPUT_NAME gradus)

add_library(gradus_internal STATIC EXCLUDE_FROM_ALL ${gradus_object_files})
gradus_library(gradus_internal)
set_target_properties(
    gradus_internal PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/internal)
