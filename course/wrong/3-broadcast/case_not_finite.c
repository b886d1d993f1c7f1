/* 80 points: the right backward does not pass on this case */
#define outer_case right_outer_case
#include "../../solutions/3-broadcast/broadcast.c"
#undef outer_case

void outer_case(int64_t fault, int64_t *rows, int64_t *columns, real *a, real *b)
{
    (void)fault;
    *rows = 3;
    *columns = 5;
    for (int i = 0; i < 3; i++) a[i] = (real)i / 0;
    for (int j = 0; j < 5; j++) b[j] = (real)(j + 1);
}
