/* 85 points: the faulty backward passes on this case */
#define outer_case right_outer_case
#include "../../solutions/3-broadcast/broadcast.c"
#undef outer_case

void outer_case(int64_t fault, int64_t *rows, int64_t *columns, real *a, real *b)
{
    (void)fault;
    *rows = 4;
    *columns = 4;
    for (int i = 0; i < 4; i++) a[i] = (real)(i + 1);
    for (int j = 0; j < 4; j++) b[j] = (real)(j + 1);
}
