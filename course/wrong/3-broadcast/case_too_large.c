/* 80 points: outer_case set a size to 17, wanted 1 to 16 */
#define outer_case right_outer_case
#include "../../solutions/3-broadcast/broadcast.c"
#undef outer_case

void outer_case(int64_t fault, int64_t *rows, int64_t *columns, real *a, real *b)
{
    (void)fault;
    *rows = 17;
    *columns = 1;
    for (int i = 0; i < 16; i++) a[i] = (real)(i + 1);
    for (int j = 0; j < 1; j++) b[j] = (real)(j + 1);
}
