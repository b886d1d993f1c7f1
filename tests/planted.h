/* planted.h - wrong backwards, to show that gradcheck finds them.
 *
 * A bug is planted into a copy of an op's record. Most are a line of the op's own kernels that is
 * another one, as kernels/NAME/planted.def says. What no line says is code: a spoiler runs the true
 * backward and spoils its result, or a backward calls the true one and does something besides. And
 * a reader of the study site writes a formula for the backward, in float64 on packed arrays. */
#ifndef GRADUS_PLANTED_H
#define GRADUS_PLANTED_H

#include "gradus/gradus.h"

#include <stdlib.h>
#include <string.h>

enum { PLANTED_MAX = 8 };

typedef struct planted_op planted_op;

/* What a formula works on: all values packed; absent inputs are NULL. g [inputs] is zero at first
 * and gets the gradients; all of them exist, needed or not. */
typedef struct planted_math {
    const gd_call *call;
    int variant;
    double *x[PLANTED_MAX];                   /* inputs */
    double *y[PLANTED_MAX], *dy[PLANTED_MAX]; /* outputs */
    double *save[PLANTED_MAX], *g[PLANTED_MAX];
} planted_math;

/* A gradient [n], in rows of `columns`, that the true backward computed, and that is to be
 * spoiled. */
typedef struct planted_gradient {
    planted_op *p;
    const gd_call *call;
    double *g, factor; /* that of the bug */
    int64_t n, columns;
} planted_gradient;

/* A spoiler: each element i becomes `value`, which is said of `was`, the elements before. */
#define EACH(name, value)                                     \
    static void name(const planted_gradient *s)               \
    {                                                         \
        double *was = malloc((size_t)s->n * sizeof *was);     \
        memcpy(was, s->g, (size_t)s->n * sizeof *was);        \
        for (int64_t i = 0; i < s->n; i++) s->g[i] = (value); \
        free(was);                                            \
    }

typedef struct planted_bug {
    const char *op, *check; /* op and case */
    const char *what;       /* "the sign of dx" */
    const char *finding;    /* words that the report must hold; NULL: none are expected */
    const gd_case *own;     /* a case of its own instead of `check` */
    int input;              /* whose gradient a spoiler spoils */
    double factor;          /* for some spoilers */
    int variant;            /* for some formulas and spoilers */
    /* One of these four, or line with a plain twin's backward: */
    int line; /* gd_planted during the backward: the number of a row of planted.def */
    void (*formula)(planted_math *m);
    void (*spoil)(const planted_gradient *s);
    gd_kernel backward;
    void (*edit)(gd_op *op); /* changes the record, besides */
    int seeds;               /* how many it may take; 0: one */
} planted_bug;

struct planted_op {
    gd_op op; /* first, so that call->op leads here */
    const gd_op *real;
    const planted_bug *bug;
    int calls;
    int64_t at; /* for some spoilers */
};

/* Makes the record. False if there is no such op. */
bool planted_make(planted_op *p, gd_context *ctx, const planted_bug *bug);

/* Its case; NULL: the op has none of that name. */
const gd_case *planted_case(const planted_bug *bug, const gd_op *op);

/* The forward of a copy of a record beside another backward: that of `real`, or what its
 * definition makes. */
static inline gd_status planted_forward(const gd_call *call, const gd_op *real)
{
    gd_call own = *call;
    gd_tensor *made[PLANTED_MAX];
    own.op = real;
    if (real->forward[GD_CPU] && (!real->kernels || real->kernels(&own)))
        return real->forward[GD_CPU](&own);
    own.output = made;
    for (int i = 0; i < call->outputs; i++) made[i] = call->output[i];
    gd_no_grad_begin(call->context);
    real->definition(&own);
    for (int i = 0; i < call->outputs; i++) gd_tensor_copy(call->output[i], made[i]);
    gd_no_grad_end(call->context);
    return gd_error_status(call->context);
}

/* The true backward. */
gd_status planted_true(const gd_call *call);

/* Lists of bugs; each ends with an entry without an op. */
extern const planted_bug planted_lines[], planted_spoilers[];

static inline int64_t planted_rows(const gd_tensor *t)
{
    int64_t rows = 1;
    for (int axis = 0; axis + 1 < gd_tensor_ndim(t); axis++) rows *= gd_tensor_dim(t, axis);
    return rows;
}

static inline int64_t planted_columns(const gd_tensor *t)
{
    return gd_tensor_ndim(t) ? gd_tensor_dim(t, -1) : 1;
}

#endif
