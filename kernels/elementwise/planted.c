/* planted.c - wrong sums over broadcast rows, and the wrong side of where; planted.def has the rest. */
#include "planted.h"

/* ---- Broadcast: b is one row under the rows of a ------------------------------------------ */

enum { ROW_RIGHT, ROW_FIRST, ROW_LAST };

/* y = a + b */
static void add_row(planted_math *m)
{
    int64_t n = gd_tensor_count(m->call->input[0]), columns = gd_tensor_count(m->call->input[1]);
    for (int64_t i = 0; i < n; i++) {
        bool counts = m->variant == ROW_RIGHT || (m->variant == ROW_FIRST && i < columns) ||
                      (m->variant == ROW_LAST && i >= n - columns);
        m->g[0][i] = m->dy[0][i];
        if (counts) m->g[1][i % columns] += m->dy[0][i];
    }
}

/* ---- where -------------------------------------------------------------------------------- */

enum { WHERE_RIGHT, WHERE_INVERSE, WHERE_BOTH };

static void where(planted_math *m)
{
    for (int64_t i = 0; i < gd_tensor_count(m->call->output[0]); i++) {
        bool first = m->x[0][i] != 0;
        if (m->variant == WHERE_INVERSE) first = !first;
        m->g[1][i] = first || m->variant == WHERE_BOTH ? m->dy[0][i] : 0;
        m->g[2][i] = !first || m->variant == WHERE_BOTH ? m->dy[0][i] : 0;
    }
}

/* ---- The list ----------------------------------------------------------------------------- */

#define BUG(op, check, function, number, what, finding)                  \
    {                                                                    \
        op, check, what, finding, .variant = number, .formula = function \
    }

const planted_bug planted_elements[] = {
    BUG("add", "b_row", add_row, ROW_RIGHT, "nothing", NULL),
    BUG("add", "b_row", add_row, ROW_FIRST, "db of the first row alone", "only dy[0, :] is used"),
    BUG("add", "b_row", add_row, ROW_LAST, "db of the last row alone", "only dy[3, :] is used"),
    BUG("where", "same", where, WHERE_RIGHT, "nothing", NULL),
    BUG("where", "same", where, WHERE_INVERSE, "the other one", "zeros in the wrong places"),
    BUG("where", "same", where, WHERE_BOTH, "both take all", "a gradient where it should be 0"),
    BUG(NULL, NULL, NULL, 0, NULL, NULL),
};
