/* sparse_tables.h - twins that train tables of many rows: one knows which rows of its gradients
 * were touched, the other takes all of them. Whatever they do, they must have the same bits. */
#ifndef GRADUS_TEST_SPARSE_TABLES_H
#define GRADUS_TEST_SPARSE_TABLES_H

#include "optim/optimizer.h"
#include "op_test.h"
#include "optimizer_kinds.h"

typedef struct tables {
    gd_context *ctx;
    gd_params *params;
    gd_tensor *a, *b, *w; /* [rows, columns], [2 rows, columns], [columns, columns] */
    int64_t rows, columns;
    gd_optimizer *optimizer;
    double norm; /* of the last clipping */
} tables;

/* Rows of optimizer_kinds.h. The first four leave rows alone that were not touched. */
static const int sparse_kinds[] = {0, 10, OPTIMIZER_LAZY, 12, 13, 14, 15, 3, 5, 16};
enum { SPARSE_KINDS = sizeof sparse_kinds / sizeof *sparse_kinds };

static inline tables tables_make(gd_context *ctx, gd_dtype dtype, int64_t rows, int64_t columns,
                                 int kind, bool dense)
{
    tables t = {.ctx = ctx, .rows = rows, .columns = columns};
    t.params = gd_params_create(ctx, dtype);
    const gd_init init = {GD_INIT_NORMAL, 0, 1};
    t.a = gd_params_addf(t.params, 0, GD_SHAPE(rows, columns), init, "a");
    t.b = gd_params_addf(t.params, GD_DECAY, GD_SHAPE(2 * rows, columns), init, "b");
    t.w = gd_params_addf(t.params, GD_MUON, GD_SHAPE(columns, columns), init, "w");
    gd_params_finish(t.params);
    t.optimizer = optimizer_of_kind(t.params, sparse_kinds[kind]);
    ck_assert_no_error(ctx);
    if (dense) gd_grad_share(t.a->grad), gd_grad_share(t.b->grad);
    return t;
}

static inline void tables_free(tables *t)
{
    gd_optimizer_free(t->optimizer);
    gd_params_free(t->params);
}

/* Ids below `limit`: none, one, few, often the same, all of them, or more than there are rows. */
static inline gd_tensor *some_ids(tables *t, int64_t limit, uint64_t *seed)
{
    const int64_t how = random_size(seed, 0, 5);
    const int64_t counts[] = {0, 1, limit / 8, limit / 5, limit, 3 * limit};
    const int64_t n = counts[how], below = how == 3 ? (limit < 3 ? limit : 3) : limit;
    int32_t *id = calloc((size_t)n + 1, sizeof *id);
    for (int64_t i = 0; i < n; i++)
        id[i] = (int32_t)(how == 4 ? i : random_size(seed, 0, below - 1));
    gd_tensor *ids = gd_constant(t->ctx, GD_INT32, GD_SHAPE(n), 0);
    gd_tensor_write(ids, id, (size_t)n * sizeof *id);
    free(id);
    return ids;
}

typedef struct segment_of {
    gd_tensor *table, *ids;
} segment_of;

static inline gd_tensor *rows_segment(void *user, gd_tensor *const *inputs, int count)
{
    const segment_of *s = user;
    (void)count;
    return gd_tanh(gd_mul(gd_embedding(s->table ? s->table : inputs[1], s->ids), inputs[0]));
}

static inline gd_tensor *tables_loss(tables *t, segment_of *s, uint64_t *seed)
{
    gd_tensor *ids = some_ids(t, t->rows, seed), *other = some_ids(t, 2 * t->rows, seed);
    const gd_dtype dtype = gd_tensor_dtype(t->a);
    gd_tensor *half = gd_constant(t->ctx, dtype, GD_SHAPE(gd_tensor_dim(ids, 0), t->columns), 0.5);
    gd_tensor *h = gd_tanh(gd_embedding(t->a, ids));
    switch (random_size(seed, 0, 7)) {
    case 0: /* one table twice */
        h = gd_mul(h, gd_embedding(t->a, ids));
        break;
    case 1:
        h = gd_matmul(gd_tanh(gd_embedding(t->b, other)), t->w);
        break;
    case 2: /* tied */
        h = gd_linear(h, t->a, NULL);
        break;
    case 3:
        *s = (segment_of){t->a, ids};
        h = gd_recompute(t->ctx, rows_segment, s, &half, 1);
        break;
    case 4:
        *s = (segment_of){NULL, ids};
        h = gd_recompute(t->ctx, rows_segment, s, (gd_tensor *[]){half, t->a}, 2);
        break;
    case 5:
        h = gd_tanh(t->w);
        break;
    case 6: /* numbers beside the tape, which touch no gradient */
        if (gd_tensor_dim(ids, 0) > 0) {
            gd_tensor *loss = gd_sum_all(gd_mul(h, h)), *slope;
            gd_gradients(&loss, 1, &(gd_gradients_options){.keep_tape = true}, &t->a, 1, &slope);
        }
        break;
    default:
        break;
    }
    return gd_sum_all(h);
}

/* Some backwards and an update, or none. */
static inline void tables_step(tables *t, uint64_t *seed)
{
    segment_of segments[3];
    gd_params *params = t->params;
    for (int64_t i = random_size(seed, 0, 2); i >= 0; i--) {
        gd_backward(tables_loss(t, &segments[i], seed));
        if (random_size(seed, 0, 9) == 0) gd_params_clear_grads(params);
    }
    if (random_size(seed, 0, 4) == 0)
        gd_params_scale_grads(params, (double)random_size(seed, -1, 2) / 2);
    const bool any = t->a->grad_valid || t->b->grad_valid || t->w->grad_valid;
    t->norm = 0;
    if (any && random_size(seed, 0, 3) > 0) {
        const double limit = (double)random_size(seed, 0, 2) / 8;
        if (random_size(seed, 0, 1)) {
            gd_clip_grad_norm(params, limit, &t->norm);
            gd_optimizer_step(t->optimizer, 0.01);
        } else {
            gd_optimizer_set_rate(t->optimizer, 0.01);
            gd_optimizer_update(t->optimizer, limit);
            gd_update_report report;
            while (gd_optimizer_report(t->optimizer, true, &report)) t->norm = report.norm;
        }
        if (random_size(seed, 0, 4)) gd_params_clear_grads(params);
    }
}

/* Whether both tensors have the same bits. */
static inline bool same_bits(gd_tensor *x, gd_tensor *y)
{
    const size_t bytes = (size_t)gd_tensor_count(x) * gd_dtype_size(gd_tensor_dtype(x));
    char *p = malloc(bytes + 1), *q = malloc(bytes + 1);
    gd_tensor_read(x, p, bytes);
    gd_tensor_read(y, q, bytes);
    const bool same = !memcmp(p, q, bytes);
    free(p), free(q);
    return same;
}

/* The same of masters, but for those of x that do not round to their parameters, whose values they
 * will take. */
static inline bool same_masters(const tables *x, gd_tensor *p, gd_tensor *q)
{
    const int64_t n = gd_tensor_count(p);
    double *mine = values_of(p), *other = values_of(q), *values = values_of(x->params->values);
    gd_tensor *rounded = gd_tensor_create(x->ctx, gd_tensor_dtype(x->a), 1, &n);
    gd_tensor_write_f64(rounded, mine, n);
    double *now = values_of(rounded);
    bool same = true;
    for (int64_t i = 0; i < n; i++) same = same && (now[i] != values[i] || mine[i] == other[i]);
    gd_tensor_free(rounded);
    free(mine), free(other), free(values), free(now);
    return same;
}

/* What first differs between the twins; NULL: nothing. */
static inline const char *tables_differ(const tables *x, const tables *y)
{
    for (int i = 0; i < gd_params_count(x->params); i++) {
        gd_tensor *p = gd_params_at(x->params, i), *q = gd_params_at(y->params, i);
        if (p->grad_valid != q->grad_valid) return "which gradients there are";
        if (p->grad_valid && !same_bits(p->grad, q->grad)) return "a gradient";
        if (!same_bits(p, q)) return "a parameter";
    }
    gd_tensor *p;
    for (int i = 0; (p = gd_optimizer_state(x->optimizer, i)); i++) {
        gd_tensor *q = gd_optimizer_state(y->optimizer, i);
        if (strcmp(gd_tensor_name(p), "master") ? !same_bits(p, q) : !same_masters(x, p, q))
            return "a state";
    }
    return memcmp(&x->norm, &y->norm, sizeof x->norm) ? "the norm" : NULL;
}

/* The same steps of both; what differs after one of them. `counted` gets the tables that
 * were sparse. */
static inline const char *tables_run(tables *x, tables *y, int steps, uint64_t seed, int *counted)
{
    const char *what = NULL;
    for (int i = 0; i < steps && !what; i++) {
        uint64_t same = seed;
        tables_step(x, &seed);
        tables_step(y, &same);
        ck_assert_no_error(x->ctx), ck_assert_no_error(y->ctx);
        *counted += x->a->grad->sparse + x->b->grad->sparse;
        ck_assert(!y->a->grad->sparse && !y->b->grad->sparse);
        what = tables_differ(x, y);
        gd_step_end(x->ctx), gd_step_end(y->ctx);
    }
    return what;
}

#endif
