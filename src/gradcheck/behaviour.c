/* behaviour.c - everything about a backward but its numbers: each check runs it in another way and
 * compares with the gradients computed before. The comparison is bitwise, except where the
 * arithmetic may legitimately differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"

/* The relative difference that rounding may cause if the same sums are computed in another way. */
static double close_enough(gd_dtype dtype)
{
    switch (dtype) {
    case GD_FLOAT64:
        return 1e-12;
    case GD_FLOAT32:
        return 3e-5;
    case GD_FLOAT16:
        return 8e-3;
    default:
        return 6e-2;
    }
}

/* The digits that distinguish any two numbers of a dtype. */
static int digits_of(gd_dtype dtype)
{
    return dtype == GD_FLOAT64 ? 17 : 9;
}

/* A run, the expected gradients, and the words for a difference. */
typedef struct gd_expectation {
    gd_run run;
    double *const *gradient; /* [inputs] */
    double *const *parts[2]; /* terms of the gradient, for its rounding error; or NULL */
    bool bitwise;
    const char *when; /* "with a cotangent of zeros" */
} gd_expectation;

static double largest_of(const double *x, int64_t count)
{
    double largest = 0;
    for (int64_t k = 0; k < count; k++)
        if (isfinite(x[k])) largest = fmax(largest, fabs(x[k]));
    return largest;
}

/* Whether the gradient of input i is as expected; *at is the first element that is not. */
static bool equal(const gd_checker *c, const gd_expectation *e, int i, const double *got,
                  int64_t *at)
{
    int64_t count = c->input[i].count;
    double size = largest_of(e->gradient[i], count);
    for (int k = 0; k < 2; k++)
        if (e->parts[k] && e->parts[k][i]) size = fmax(size, largest_of(e->parts[k][i], count));
    for (*at = 0; *at < count; ++*at) {
        double g = got[*at], w = e->gradient[i][*at];
        if (!memcmp(&g, &w, sizeof g) || (isnan(g) && isnan(w))) continue;
        if (!e->bitwise && gd_check_overflows(c->input[i].dtype, g, w)) continue;
        if (e->bitwise || !(g == w || fabs(g - w) <= close_enough(c->dtype) * size)) return false;
    }
    return true;
}

/* The gradients for the same cotangents with every second sign changed. A gradient whose terms
 * cancel says nothing about their size, but then this one does. */
static gd_status other_signs(gd_checker *c, double *const *cotangent, double ***gradient)
{
    double **changed = gd_check_allocate(c, c->outputs, sizeof *changed);
    gd_status status = gd_check_make_gradients(c, gradient);
    if (!changed || status) return GD_ERROR_MEMORY;
    for (int o = 0; o < c->outputs; o++) {
        const int64_t count = c->output[o].count;
        if (!cotangent[o]) continue;
        changed[o] = gd_check_numbers(c, count);
        if (!changed[o]) return GD_ERROR_MEMORY;
        for (int64_t k = 0; k < count; k++) changed[o][k] = (k % 2 ? -1 : 1) * cotangent[o][k];
    }
    const gd_run run = {.cotangent = changed};
    return gd_check_backward(c, &run, *gradient);
}

/* For printing: a NaN without a sign. */
static double unsigned_nan(double x)
{
    return isnan(x) ? NAN : x;
}

/* Runs and compares; complains about the first input that differs. *kept: whether none does. */
static gd_status expect(gd_checker *c, const gd_expectation *expected, bool *kept)
{
    gd_expectation again = *expected, *e = &again;
    double **got, **other;
    gd_status status = gd_check_make_gradients(c, &got);
    if (!status) status = gd_check_backward(c, &e->run, got);
    if (kept) *kept = true;
    for (int i = 0; i < c->inputs && !status; i++) {
        const gd_argument *a = &c->input[i];
        int64_t at;
        if (!a->wanted || (e->run.wanted && !e->run.wanted[i])) continue;
        if (equal(c, e, i, got[i], &at)) continue;
        if (!e->bitwise && !e->parts[0]) {
            status = other_signs(c, e->run.cotangent, &other);
            e->parts[0] = other;
            if (status || equal(c, e, i, got[i], &at)) continue;
        }
        const int digits = e->bitwise ? digits_of(a->dtype) : 9;
        gd_check_complain(c, i, "%s: %s%s is %.*g instead of %.*g", e->when, a->name,
                          gd_check_place(a->ndim, a->shape, at).text, digits,
                          unsigned_nan(got[i][at]), digits, unsigned_nan(e->gradient[i][at]));
        if (kept) *kept = false;
    }
    return status;
}

/* ---- Again -------------------------------------------------------------------------------- */

static gd_status repeats(gd_checker *c)
{
    gd_expectation e = {.run = {.cotangent = c->cotangent[0]},
                        .gradient = c->analytic[0],
                        .bitwise = true,
                        .when = "a second run gives different bits"};
    gd_status status = expect(c, &e, NULL);
    e.run.twice = true;
    e.when = "a second backward over the same tape gives different bits";
    return status ? status : expect(c, &e, NULL);
}

/* The outputs must not depend on whether the op is recorded. */
static gd_status records(gd_checker *c)
{
    for (int o = 0; o < c->outputs; o++) /* base was computed from `measured`, not the leaves */
        if (c->output[o].measured != c->output[o].dtype) return GD_OK;
    double **y = gd_check_allocate(c, c->outputs, sizeof *y), **got;
    gd_status status = gd_check_make_gradients(c, &got);
    if (!y || status) return GD_ERROR_MEMORY;
    for (int o = 0; o < c->outputs; o++) {
        y[o] = gd_check_numbers(c, c->output[o].count);
        if (!y[o]) return GD_ERROR_MEMORY;
    }
    gd_run run = {.cotangent = c->cotangent[0], .values = y};
    status = gd_check_backward(c, &run, got);
    for (int o = 0; o < c->outputs && !status; o++) {
        const gd_result *r = &c->output[o];
        for (int64_t k = 0; k < r->count && r->real; k++) {
            if (y[o][k] == r->base[k] || (isnan(y[o][k]) && isnan(r->base[k]))) continue;
            const int digits = digits_of(r->dtype);
            gd_check_complain(c, -1, "output %d%s is %.*g when recorded, %.*g when not", o,
                              gd_check_place(r->ndim, r->shape, k).text, digits, y[o][k], digits,
                              r->base[k]);
            return status;
        }
    }
    return status;
}

/* A float64 gradient of float32 values: the cotangents have more digits, so it was rounded. Inputs
 * that are wrong or inconclusive have other trouble. */
static gd_status keeps_digits(gd_checker *c)
{
    for (int o = 0; o < c->outputs; o++)
        if (c->output[o].real && c->output[o].dtype != GD_FLOAT64) return GD_OK;
    for (int k = 0; k < c->report->inputs; k++) {
        const gd_gradcheck_input *in = &c->report->input[k];
        const gd_argument *a = &c->input[in->index];
        int64_t rounded = 0, others = 0;
        if (a->dtype != GD_FLOAT64 || in->wrong || in->inconclusive) continue;
        for (int set = 0; set < c->sets; set++) {
            for (int64_t e = 0; e < a->count; e++) {
                const double g = c->analytic[set][in->index][e];
                const bool few = (double)(float)g == g;
                rounded += few && g != 0;
                others += !few;
            }
        }
        if (rounded >= 4 && !others)
            gd_check_complain(c, in->index, "all its values are float32 numbers: it was rounded");
    }
    return GD_OK;
}

/* ---- Accumulation ------------------------------------------------------------------------- */

/* A gradient that holds g0 must become g0 + g, also if every second one does not exist yet. */
static gd_status accumulates(gd_checker *c)
{
    double **held, **sum;
    gd_status status = gd_check_make_gradients(c, &held);
    if (!status) status = gd_check_make_gradients(c, &sum);
    for (int i = 0; i < c->inputs && !status; i++) {
        const gd_argument *a = &c->input[i];
        if (!a->wanted) continue;
        double largest = largest_of(c->analytic[0][i], a->count);
        if (!(largest > 0)) largest = 1;
        int exponent; /* g0 has few significant bits, so it is exact in every dtype */
        frexp(largest, &exponent);
        gd_check_normal(held[i], a->count, c->options.seed, GD_STREAM_HELD + (uint64_t)i);
        for (int64_t k = 0; k < a->count; k++) {
            held[i][k] = ldexp(round(held[i][k] * 4) / 4 + 0.125, exponent - 3);
            sum[i][k] = held[i][k] + c->analytic[0][i][k];
        }
    }
    gd_expectation e = {.run = {.cotangent = c->cotangent[0], .twice = true, .held = held},
                        .gradient = sum,
                        .parts = {held, c->analytic[0]},
                        .when = "when added to an existing gradient"};
    if (!status) status = expect(c, &e, NULL);
    int wanted = 0;
    for (int i = 0; i < c->inputs && !status; i++) {
        if (!c->input[i].wanted || wanted++ % 2 == 0) continue;
        held[i] = NULL;
        sum[i] = c->analytic[0][i];
    }
    e.when = "when only every second gradient exists";
    return status || wanted < 2 ? status : expect(c, &e, NULL);
}

/* ---- Cotangents --------------------------------------------------------------------------- */

/* Zero cotangents for all outputs, or for those that have none in `given`. */
static double **zero_cotangents(gd_checker *c, double *const *given)
{
    double **u = gd_check_allocate(c, c->outputs, sizeof *u);
    for (int o = 0; o < c->outputs && u; o++) {
        if (!c->output[o].real) continue;
        u[o] = given && given[o] ? given[o] : gd_check_numbers(c, c->output[o].count);
        if (!u[o]) return NULL;
    }
    return u;
}

static bool finite_outputs(const gd_checker *c)
{
    for (int o = 0; o < c->outputs; o++)
        for (int64_t k = 0; k < c->output[o].count && c->output[o].real; k++)
            if (!isfinite(c->output[o].base[k])) return false;
    return true;
}

static gd_status takes_cotangents(gd_checker *c)
{
    double **zero, **u = zero_cotangents(c, NULL);
    gd_status status = gd_check_make_gradients(c, &zero);
    if (!u || status) return GD_ERROR_MEMORY;
    gd_expectation e = {
        .run = {.cotangent = u}, .gradient = zero, .when = "with a cotangent of zeros"};
    if (finite_outputs(c)) status = expect(c, &e, NULL);
    for (int set = 0; set < c->sets && !status; set++) {
        if (c->alone[set] < 0) continue;
        u = zero_cotangents(c, c->cotangent[set]);
        if (!u) return GD_ERROR_MEMORY;
        e = (gd_expectation){.run = {.cotangent = u},
                             .gradient = c->analytic[set],
                             .when = "with zeros for a missing cotangent"};
        status = expect(c, &e, NULL);
    }
    return status;
}

/* ---- Wanted gradients --------------------------------------------------------------------- */

static gd_status wants(gd_checker *c, const bool *wanted)
{
    char when[160] = "when only ";
    for (int i = 0, n = 0; i < c->inputs; i++) {
        size_t used = strlen(when);
        if (wanted[i])
            snprintf(when + used, sizeof when - used, "%s%s", n++ ? ", " : "", c->input[i].name);
    }
    size_t used = strlen(when);
    snprintf(when + used, sizeof when - used, " requires a gradient");
    gd_expectation e = {.run = {.cotangent = c->cotangent[0], .wanted = wanted},
                        .gradient = c->analytic[0],
                        .bitwise = true,
                        .when = when};
    return expect(c, &e, NULL);
}

/* Every subset of up to 5 inputs; with more inputs, each alone and all but each. */
static gd_status takes_subsets(gd_checker *c)
{
    int wanted = 0;
    bool *subset = gd_check_allocate(c, c->inputs, sizeof *subset);
    int *index = gd_check_allocate(c, c->inputs, sizeof *index);
    if (!subset || !index) return GD_ERROR_MEMORY;
    for (int i = 0; i < c->inputs; i++)
        if (c->input[i].wanted) index[wanted++] = i;
    if (wanted < 2) return GD_OK;
    int subsets = wanted <= 5 ? (1 << wanted) - 2 : 2 * wanted;
    for (int s = 0; s < subsets; s++) {
        for (int k = 0; k < wanted; k++) {
            bool alone = s < wanted;
            subset[index[k]] = wanted <= 5 ? (s + 1) >> k & 1 : (k == s % wanted) == alone;
        }
        gd_status status = wants(c, subset);
        if (status) return status;
    }
    return GD_OK;
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* Overwrites what the record does not declare as read; the gradients must not change. */
static gd_status declares(gd_checker *c, bool *kept)
{
    gd_expectation e = {.run = {.cotangent = c->cotangent[0]},
                        .gradient = c->analytic[0],
                        .bitwise = true,
                        .when = "the backward reads something that the record does not declare"};
    c->probe->spoil = true;
    gd_status status = expect(c, &e, kept);
    c->probe->spoil = false;
    return status;
}

/* Results must not depend on the number of threads. */
static gd_status takes_threads(gd_checker *c)
{
    static const struct {
        int threads;
        const char *when;
    } runs[] = {{1, "with 1 thread"}, {3, "with 3 threads"}};
    gd_status status = GD_OK;
    for (size_t i = 0; i < sizeof runs / sizeof *runs && !status; i++) {
        gd_expectation e = {.run = {.cotangent = c->cotangent[0]},
                            .gradient = c->analytic[0],
                            .bitwise = true,
                            .when = runs[i].when};
        c->probe->threads = runs[i].threads;
        status = expect(c, &e, NULL);
    }
    c->probe->threads = 0;
    return status;
}

/* What the backward needs must be in inputs, outputs and saves, which belong to one call. */
static gd_status keeps_nothing_elsewhere(gd_checker *c)
{
    gd_expectation e = {.run = {.cotangent = c->cotangent[0], .interrupted = true},
                        .gradient = c->analytic[0],
                        .bitwise = true,
                        .when = "when the op ran on other data before the backward"};
    return expect(c, &e, NULL);
}

/* With inputs made by ops the tape may write dx over dy or over x, if the record allows it. */
static gd_status shares_memory(gd_checker *c)
{
    gd_expectation e = {.run = {.cotangent = c->cotangent[0], .op_made_inputs = true},
                        .gradient = c->analytic[0],
                        .when = "when the tape may reuse memory"};
    gd_status status = expect(c, &e, NULL);
    e.run.op_made_outputs = true;
    if (!status) status = expect(c, &e, NULL);
    e.run.op_made_inputs = false;
    return status ? status : expect(c, &e, NULL);
}

static gd_status takes_strides(gd_checker *c)
{
    gd_expectation e = {.run = {.cotangent = c->cotangent[0], .strided = true},
                        .gradient = c->analytic[0],
                        .when = "with strided inputs and cotangents"};
    gd_status status = expect(c, &e, NULL);
    e.run.reversed = true;
    e.when = "with transposed inputs and cotangents";
    return status ? status : expect(c, &e, NULL);
}

/* f(x, x): the gradient of x is the sum of both arguments' gradients. */
static gd_status takes_same_twice(gd_checker *c, int i, int j)
{
    gd_argument *from = &c->input[i], *to = &c->input[j];
    double *own = to->value, **separate, **sum;
    gd_status status = gd_check_make_gradients(c, &separate);
    if (!status) status = gd_check_make_gradients(c, &sum);
    if (!status) status = gd_tensor_write_f64(to->leaf, from->value, to->count);
    if (status) return status;
    to->value = from->value;
    gd_run run = {.cotangent = c->cotangent[0]};
    status = gd_check_backward(c, &run, separate);
    bool finite = true;
    double *parts[2][GD_CASE_MAX_INPUTS] = {{0}};
    parts[0][i] = separate[i];
    parts[1][i] = separate[j];
    for (int64_t k = 0; k < from->count; k++) {
        sum[i][k] = separate[i][k] + separate[j][k];
        finite = finite && isfinite(sum[i][k]);
    }
    bool *wanted = gd_check_allocate(c, c->inputs, sizeof *wanted);
    if (!wanted) status = GD_ERROR_MEMORY;
    if (!status) wanted[i] = true;
    gd_expectation e = {
        .run = {.cotangent = c->cotangent[0], .same_from = i, .same_to = j, .wanted = wanted},
        .gradient = sum,
        .parts = {parts[0], parts[1]},
        .when = "with the same tensor as two inputs"};
    if (!status && finite) status = expect(c, &e, NULL);
    to->value = own;
    gd_status restored = gd_tensor_write_f64(to->leaf, own, to->count);
    return status ? status : restored;
}

static gd_status takes_same(gd_checker *c)
{
    for (int j = 1; j < c->inputs; j++) {
        for (int i = 0; i < j; i++) {
            const gd_argument *a = &c->input[i], *b = &c->input[j];
            if (!a->wanted || !b->wanted || a->ndim != b->ndim ||
                memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape))
                continue;
            return takes_same_twice(c, i, j);
        }
    }
    return GD_OK;
}

/* ---- All ---------------------------------------------------------------------------------- */

gd_status gd_check_behaviour(gd_checker *c)
{
    static gd_status (*const always[])(gd_checker *) = {
        repeats, records, keeps_digits, accumulates, takes_cotangents, takes_subsets};
    gd_status status = GD_OK;
    for (size_t i = 0; i < sizeof always / sizeof *always && !status; i++) status = always[i](c);
    if (!c->probe || status) return status;
    /* Only for ops: a user's function may access its inputs in other ways. */
    bool declared = true;
    status = declares(c, &declared);
    if (!status && declared) status = shares_memory(c); /* else it would read lost data */
    if (!status) status = takes_threads(c);
    if (!status) status = keeps_nothing_elsewhere(c);
    if (!status) status = takes_strides(c);
    return status ? status : takes_same(c);
}
