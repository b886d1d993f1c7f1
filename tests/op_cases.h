/* op_cases.h - a case of a record, run forward and backward in any dtype and memory layout, and
 * what it leaves: for tests of all records. */
#ifndef GRADUS_TEST_OP_CASES_H
#define GRADUS_TEST_OP_CASES_H

#include <math.h>
#include <string.h>

#include "gradcheck/check.h"
#include "op_test.h"

enum { MOST_PARTS = 4 * GD_CASE_MAX_INPUTS, MOST_OUTPUTS = 8 };

/* A result of a run. */
typedef struct part {
    char name[96];
    bool summed; /* the gradient after the second backward */
    bool whole;  /* numbers */
    int64_t count;
    double *value;
} part;

typedef struct outcome {
    char refused[512];  /* what the op said, if it did not run */
    int parts, outputs; /* the first parts are outputs, and inputs that were updated */
    part part[MOST_PARTS];
} outcome;

/* In element `at` of output `output`'s cotangent stands `value`. */
typedef struct put_cotangent {
    bool wanted;
    int output;
    int64_t at;
    double value;
} put_cotangent;

typedef struct problem {
    const gd_op *op;
    const gd_case *c;
    double *input[GD_CASE_MAX_INPUTS]; /* packed */
    uint64_t seed;
    put_cotangent put;
} problem;

static inline void keep_part(outcome *out, const char *name, bool summed, const gd_tensor *t)
{
    part *p = &out->part[out->parts++];
    ck_assert_int_le(out->parts, MOST_PARTS);
    snprintf(p->name, sizeof p->name, "%s%s", name, summed ? " after a second backward" : "");
    p->summed = summed;
    p->whole = t && gd_tensor_dtype(t) == GD_INT32;
    p->count = t ? gd_tensor_count(t) : 0;
    p->value = zeros(p->count);
    if (t) gd_tensor_read_f64(t, p->value, p->count);
}

static inline void free_outcome(outcome *out)
{
    for (int i = 0; i < out->parts; i++) free(out->part[i].value);
    out->parts = 0;
}

static inline int64_t case_count(const gd_case_input *in)
{
    int64_t count = in->absent ? 0 : 1;
    for (int d = 0; d < in->ndim && !in->absent; d++) count *= in->shape[d];
    return count;
}

/* The values of the inputs, rounded to dtype, so that all who use them get the same numbers. */
static inline void make_values(problem *p, gd_context *cpu, gd_dtype dtype)
{
    for (int i = 0; i < p->c->inputs; i++) {
        const gd_case_input *in = &p->c->input[i];
        int64_t count = case_count(in);
        double *value = zeros(count), *scratch = zeros(count);
        gd_check_fill(value, count, in, 0.01, p->seed + test_seed(), (uint64_t)i, scratch);
        if (in->fill != GD_FILL_INDEX && count) {
            gd_tensor *t = gd_tensor_create(cpu, dtype, 1, &count);
            gd_tensor_write_f64(t, value, count);
            gd_tensor_read_f64(t, value, count);
            gd_tensor_free(t);
        }
        p->input[i] = value;
        free(scratch);
    }
    ck_assert_no_error(cpu);
}

static inline void free_values(problem *p)
{
    for (int i = 0; i < p->c->inputs; i++) free(p->input[i]);
}

/* What the op gets of a leaf, or the gradient for that. SLICED: rows without the element before
 * them and the two after them; TRANSPOSED: dimensions in the opposite order. */
static inline gd_tensor *view_of(gd_tensor *leaf, const gd_case_input *in, layout way)
{
    int axes[GD_MAX_DIMS];
    for (int d = 0; d < in->ndim; d++) axes[d] = in->ndim - 1 - d;
    if (way == SLICED && in->ndim > 0) return gd_slice(leaf, -1, 1, 1 + in->shape[in->ndim - 1]);
    return way == TRANSPOSED && in->ndim > 1 ? gd_permute(leaf, axes) : leaf;
}

/* The leaf of an input, NaN where the op does not see it. */
static inline gd_tensor *make_leaf(gd_context *ctx, const gd_case_input *in, gd_dtype dtype,
                                   layout way, const double *value)
{
    const bool index = in->fill == GD_FILL_INDEX, sliced = way == SLICED && in->ndim > 0;
    const bool transposed = way == TRANSPOSED && in->ndim > 1;
    shape s = {in->ndim, {0}}, base;
    int axes[GD_MAX_DIMS];
    memcpy(s.dim, in->shape, sizeof s.dim);
    base = s;
    if (sliced) base.dim[s.ndim - 1] += 3;
    for (int d = 0; d < s.ndim; d++) axes[d] = s.ndim - 1 - d;
    for (int d = 0; d < s.ndim && transposed; d++) base.dim[d] = s.dim[axes[d]];
    double *all = zeros(count_of(base));
    for (int64_t i = 0; i < count_of(base); i++) {
        int64_t at[GD_MAX_DIMS], place = 0;
        unravel(base, i, at);
        bool within = true;
        for (int d = 0; d < s.ndim; d++) {
            const int64_t k = at[transposed ? axes[d] : d] - (sliced && d == s.ndim - 1);
            within = within && k >= 0 && k < s.dim[d];
            place = place * s.dim[d] + k;
        }
        all[i] = within ? value[place] : index ? 0 : (double)NAN;
    }
    gd_tensor *t = gd_tensor_create(ctx, index ? GD_INT32 : dtype, base.ndim, base.dim);
    gd_tensor_write_f64(t, all, count_of(base));
    if (!index && !in->fixed) gd_tensor_set_requires_grad(t, true);
    free(all);
    return t;
}

/* Random multiples of 1/64. */
static inline gd_tensor *make_cotangent(gd_context *ctx, const gd_tensor *y, const problem *p,
                                        int i)
{
    const int64_t n = gd_tensor_count(y);
    double *value = zeros(n);
    gd_check_normal(value, n, p->seed + test_seed() + (uint64_t)i, 77);
    for (int64_t k = 0; k < n; k++) value[k] = ldexp(rint(ldexp((float)value[k], 6)), -6);
    if (p->put.wanted && p->put.output == i) value[p->put.at] = p->put.value;
    gd_tensor *t = gd_tensor_create(ctx, gd_tensor_dtype(y), gd_tensor_ndim(y), gd_tensor_shape(y));
    gd_tensor_write_f64(t, value, n);
    free(value);
    return t;
}

static inline int64_t nonzero(const gd_tensor *t)
{
    double *value = values_of(t);
    int64_t count = 0;
    for (int64_t i = 0; i < gd_tensor_count(t); i++) count += value[i] != 0;
    free(value);
    return count;
}

/* Whether the op refused the call; then the error goes to the outcome. */
static inline bool was_refused(gd_context *ctx, outcome *out)
{
    if (!gd_error_status(ctx)) return false;
    snprintf(out->refused, sizeof out->refused, "%s", gd_error(ctx));
    gd_error_clear(ctx);
    return true;
}

/* Forward, and the backward twice over the same tape: the first overwrites the gradients, the
 * second adds to them. All runs draw the same random numbers. */
static inline void run_problem(const problem *p, gd_context *ctx, gd_dtype dtype, layout way,
                               outcome *out)
{
    gd_tensor *leaf[GD_CASE_MAX_INPUTS] = {NULL}, *input[GD_CASE_MAX_INPUTS] = {NULL};
    gd_tensor *output[MOST_OUTPUTS], *cotangent[MOST_OUTPUTS] = {NULL};
    const int outputs = gd_op_count(p->op).outputs;
    *out = (outcome){.parts = 0};
    gd_random_set(ctx, (gd_random_state){.seed = 5});
    for (int i = 0; i < p->c->inputs; i++) {
        if (p->c->input[i].absent) continue;
        leaf[i] = make_leaf(ctx, &p->c->input[i], dtype, way, p->input[i]);
        input[i] = view_of(leaf[i], &p->c->input[i], way);
    }
    ck_assert_no_error(ctx);
    gd_apply_multi(p->op, input, p->c->inputs, p->c->args, output);
    bool going = !was_refused(ctx, out);
    for (int i = 0; i < outputs && going; i++) {
        gd_keep(output[i]);
        keep_part(out, "output", false, output[i]);
        if (!gd_op_has_backward(p->op, GD_CPU)) continue; /* whole numbers */
        cotangent[i] = make_cotangent(ctx, output[i], p, i);
    }
    for (int i = 0; i < p->c->inputs && going; i++) {
        if (!input[i] || !(p->op->updates_inputs & GD_BIT(i))) continue;
        char name[64];
        snprintf(name, sizeof name, "%.40s, updated", gd_input_name(p->op, i).text);
        keep_part(out, name, false, input[i]);
    }
    out->outputs = out->parts;
    gd_backward_options options = {.cotangents = cotangent, .keep_tape = true};
    for (int turn = 0; turn < 2 && gd_op_has_backward(p->op, GD_CPU) && going; turn++) {
        gd_backward_from(output, outputs, &options);
        going = !was_refused(ctx, out);
        for (int i = 0; i < p->c->inputs && going; i++) {
            if (!leaf[i] || !gd_tensor_requires_grad(leaf[i])) continue;
            char name[48];
            snprintf(name, sizeof name, "d%.40s", gd_input_name(p->op, i).text);
            gd_tensor *all = gd_grad(leaf[i]), *seen = view_of(all, &p->c->input[i], way);
            keep_part(out, name, turn, seen);
            ck_assert_int_eq(nonzero(all), nonzero(seen)); /* nothing where the op does not look */
        }
    }
    gd_step_end(ctx);
    for (int i = 0; i < outputs; i++) gd_tensor_free(cotangent[i]);
    for (int i = 0; i < p->c->inputs; i++) gd_tensor_free(leaf[i]);
    ck_assert_no_error(ctx);
}

static inline double largest_of(const part *p)
{
    double largest = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (isfinite(p->value[i])) largest = fmax(largest, fabs(p->value[i]));
    return largest;
}

typedef struct tally {
    int compared, wrong, refused;
    double worst; /* of the tolerance */
    char where[256];
} tally;

/* The allowed error of an element. `largest` is that of its tensor. 16-bit results are rounded
 * once, except
 *
 * - in linear with a bias: the library may round the product, and then the sum with a bias of up to
 *   4; the error is some units of the product;
 * - in attention, which rounds p and ds before their products, as tensor cores require. That is
 *   half a unit of each term of a sum, so y is off by a unit of the largest. And delta = dy . y is
 *   computed from this y; in ds = p (dp - delta) the difference may be several times smaller than
 *   delta;
 * - in rope_attention, which besides rounds q and k after their rotation;
 * - in lstm and gru, which round the state that the next step's product reads, and every step's
 *   gradient before the products that pass it on;
 * - in linear_cross_entropy, which stores the logits, and their gradient in the same memory, in the
 *   dtype of the inputs. */
static inline double tolerance(const gd_op *op, double want, double largest, const part *p,
                               gd_dtype dtype)
{
    double f32 = 1e-5 * largest;
    if (dtype == GD_FLOAT64) return 1e-12 * largest;
    if (dtype == GD_FLOAT32) return f32;
    if (!strcmp(op->name, "linear")) want = fabs(want) + 4;
    const bool rotated = !strcmp(op->name, "rope_attention");
    if (rotated || !strcmp(op->name, "attention"))
        f32 += (rotated ? 2 : 1) * (strcmp(p->name, "output") ? 6 : 1) * ulp_of(largest, dtype);
    if (!strcmp(op->name, "lstm") || !strcmp(op->name, "gru")) f32 += 2 * ulp_of(largest, dtype);
    if (!strcmp(op->name, "linear_cross_entropy")) f32 += ulp_of(largest, dtype);
    return f32 + (p->summed ? 2 : 1) * ulp_of(want, dtype);
}

static inline void compare_outcomes(const problem *p, gd_dtype dtype, const char *how,
                                    const outcome *got, const outcome *want, tally *t)
{
    ck_assert_int_eq(got->parts, want->parts);
    double terms = 0;
    for (int k = 0; k < want->parts; k++) terms = fmax(terms, largest_of(&want->part[k]));
    terms = fmin(terms, 1);
    /* All of a gradient may be what is left of terms that cancel (softmax of two, or of a single
     * key that a mask leaves; a norm of one column): four roundings of these are allowed, too. */
    const double left = 4 * ulp_of(1, dtype == GD_FLOAT64 ? dtype : GD_FLOAT32) * terms;
    for (int k = 0; k < want->parts; k++) {
        const part *w = &want->part[k], *g = &got->part[k];
        ck_assert_int_eq(g->count, w->count);
        double largest = largest_of(w);
        bool told = false;
        for (int64_t i = 0; i < w->count; i++) {
            double a = g->value[i], b = w->value[i];
            if (a == b || (isnan(a) && isnan(b))) continue;
            const double allowed =
                tolerance(p->op, b, largest, w, dtype) + (k < want->outputs ? 0 : left);
            double share = fabs(a - b) / allowed;
            bool bad = !(share <= 1);
            if (!(share <= t->worst)) {
                t->worst = isnan(share) ? INFINITY : share;
                snprintf(t->where, sizeof t->where, "%s, case %s, %s, %s", p->op->name, p->c->name,
                         how, w->name);
            }
            if (bad && !told) {
                printf("%s, case %s, %s, %s: %s[%lld] is %.9g, wanted %.9g (largest %.3g)\n",
                       p->op->name, p->c->name, gd_dtype_name(dtype), how, w->name, (long long)i, a,
                       b, largest);
                told = true;
            }
        }
        t->compared++;
        t->wrong += told;
    }
}

/* Whether both have the same bits, or both NaN. */
static inline bool same_number(double a, double b)
{
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b));
}

#endif
