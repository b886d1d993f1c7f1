# Writes the list of ops, a row GD_OP(NAME) for each record that a folder of kernels/ defines:
#   const gd_op gd_op_NAME =
# or the row of a table that makes records, as UNARY(NAME, "formula" ...).
#   cmake -DOUTPUT=op_list.h "-DSOURCES=kernels/abs/abs.c;..." -P ops.cmake

set(rows "")
foreach(source IN LISTS SOURCES)
    file(STRINGS ${source} lines
         REGEX "^const gd_op gd_op_[a-z0-9_]+ =|^[A-Z]+\\([a-z0-9_]+, \"")
    foreach(line IN LISTS lines)
        string(REGEX MATCH "(gd_op_|\\()([a-z0-9_]+)" name "${line}")
        string(APPEND rows "GD_OP(${CMAKE_MATCH_2})\n")
    endforeach()
endforeach()
file(WRITE ${OUTPUT}.new "${rows}")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
