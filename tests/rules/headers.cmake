# Every public header compiles alone, as C11, C++17 and C++20 (where there is a C++ compiler), without a
# warning for the file that includes it.
#   cmake -DC=compiler [-DCXX=compiler] -DINCLUDE=folder -P headers.cmake

cmake_minimum_required(VERSION 3.25)

file(GLOB headers ${INCLUDE}/gradus/*.h)
list(LENGTH headers count)
if(count EQUAL 0)
    message(FATAL_ERROR "no headers in ${INCLUDE}/gradus")
endif()

set(warnings -Wall -Wextra -Wpedantic -Wconversion -Werror)
function(compile header)
    execute_process(
        COMMAND ${ARGN} ${warnings} -fsyntax-only -I${INCLUDE} -include ${header} /dev/null
        RESULT_VARIABLE status ERROR_VARIABLE errors)
    if(NOT status EQUAL 0)
        message(SEND_ERROR "${header} does not compile alone (${ARGN}):\n${errors}")
    endif()
endfunction()

foreach(header IN LISTS headers)
    compile(${header} ${C} -std=c11 -x c)
    if(CXX)
        compile(${header} ${CXX} -std=c++17 -x c++)
        compile(${header} ${CXX} -std=c++20 -x c++)
    endif()
endforeach()
if(CXX)
    compile(${CMAKE_CURRENT_LIST_DIR}/install/consumer.cpp ${CXX} -std=c++11 -x c++)
endif()
message("${count} headers")
