/* behaviour.c - everything about a backward but its numbers: each check runs it in another way and
 * compares with the gradients computed before. The comparison is bitwise, except where the
 * arithmetic may legitimately differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"

double gd_check_close(gd_dtype dtype)
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

/* What a walk's gradients are compared with. */
typedef enum gd_sameness {
    CLOSE,          /* the same but for rounding */
    BITS,           /* the same bits */
    BITS_IF_CLAIMED /* the same bits if the record says so; else a difference by rounding is only
                     * remarked on */
} gd_sameness;

/* The expected gradients of a walk, and the words for a difference. */
typedef struct gd_expectation {
    double *const *cotangent;
    double *const *held;
    double *const *gradient; /* [inputs] */
    const double *noise;     /* [inputs] by gd_check_shake; NULL: not known */
    gd_sameness same;
    bool repeat;    /* a NaN must be one again; else nothing is expected instead of one */
    char when[160]; /* "with a cotangent of zeros" */
} gd_expectation;

static double largest_of(const double *x, int64_t count)
{
    double largest = 0;
    for (int64_t k = 0; k < count; k++)
        if (isfinite(x[k])) largest = fmax(largest, fabs(x[k]));
    return largest;
}

/* Whether the gradient of input i is as expected, to the bit or within rounding; *at is the first
 * element that is not. */
static bool equal(const gd_checker *c, const gd_expectation *e, bool bitwise, int i,
                  const double *got, int64_t *at)
{
    int64_t count = c->input[i].count;
    double size = largest_of(e->gradient[i], count);
    if (e->held && e->held[i]) size = fmax(size, largest_of(e->held[i], count));
    for (*at = 0; *at < count; ++*at) {
        double g = got[*at], w = e->gradient[i][*at];
        if (!memcmp(&g, &w, sizeof g) || (isnan(w) && (isnan(g) || !e->repeat))) continue;
        if (!bitwise && gd_check_overflows(c->input[i].dtype, g, w)) continue;
        const double most = gd_check_close(c->dtype) * size + (e->noise ? 8 * e->noise[i] : 0);
        if (bitwise || !(g == w || fabs(g - w) <= most)) return false;
    }
    return true;
}

/* For printing: a NaN without a sign. */
static double unsigned_nan(double x)
{
    return isnan(x) ? NAN : x;
}

/* Compares the gradient of input i, and complains or remarks on it. */
static gd_status compare(gd_checker *c, gd_expectation *e, int i, const double *got, bool *kept)
{
    const gd_argument *a = &c->input[i];
    const bool claimed = c->op && c->op->same_bits;
    const bool bitwise = e->same == BITS || (e->same == BITS_IF_CLAIMED && claimed);
    int64_t at, bit = -1;
    if (e->same == BITS_IF_CLAIMED && !bitwise && !equal(c, e, true, i, got, &at)) bit = at;
    bool fine = equal(c, e, bitwise, i, got, &at);
    if (!fine && !bitwise && !e->noise) {
        e->noise = gd_check_shake(c, e->cotangent, gd_check_close(c->dtype));
        if (!e->noise) return gd_error_status(c->ctx);
        fine = equal(c, e, false, i, got, &at);
    }
    if (fine && bit < 0) return GD_OK;
    if (fine) at = bit;
    const int digits = bitwise || fine ? digits_of(a->dtype) : 9;
    char text[512];
    snprintf(text, sizeof text, "%s: %s%s is %.*g instead of %.*g", e->when, a->name,
             gd_check_place(a->ndim, a->shape, at).text, digits, unsigned_nan(got[at]), digits,
             unsigned_nan(e->gradient[i][at]));
    if (fine)
        gd_check_remark(c, i,
                        "%s, it differs by rounding: compute each gradient in a loop of its "
                        "own",
                        text);
    else
        gd_check_complain(c, i, "%s", text);
    *kept = *kept && fine;
    return GD_OK;
}

/* As many as may share a tape: two plain ones and seven subsets of three that exist, and two with
 * each output's cotangent alone. */
static int most_walks(const gd_checker *c)
{
    return 9 + 2 * c->sets;
}

/* The gradients that walk k of a run computes: memory that all runs share. */
static double **gradients_got(gd_checker *c, int k)
{
    if (!c->got[k] && gd_check_make_gradients(c, &c->got[k])) return NULL;
    return c->got[k];
}

/* Runs, walks for each expectation and compares; complains about the first input that differs.
 * *kept: whether none does. */
static gd_status expect(gd_checker *c, const gd_run *how, gd_expectation *list, int count,
                        bool *kept)
{
    gd_walk *walk = gd_check_allocate(c, count, sizeof *walk);
    gd_run run = *how;
    bool all = true;
    if (!walk) return GD_ERROR_MEMORY;
    run.walk = walk;
    run.walks = count;
    for (int k = 0; k < count; k++) {
        walk[k] = (gd_walk){list[k].cotangent, list[k].held, gradients_got(c, k)};
        if (!walk[k].gradient) return GD_ERROR_MEMORY;
    }
    gd_status status = gd_check_run(c, &run);
    for (int k = 0; k < count; k++)
        for (int i = 0; i < c->inputs && !status; i++)
            if (c->input[i].wanted && (!run.wanted || run.wanted[i]))
                status = compare(c, &list[k], i, walk[k].gradient[i], &all);
    if (kept) *kept = all;
    return status;
}

/* With the first cotangents and the gradients that they gave before. */
static gd_status expect_same(gd_checker *c, const gd_run *how, gd_sameness same, const char *when,
                             bool *kept)
{
    gd_expectation e = {.cotangent = c->cotangent[0], .gradient = c->analytic[0], .same = same};
    snprintf(e.when, sizeof e.when, "%s", when);
    return expect(c, how, &e, 1, kept);
}

/* A float64 gradient of float32 values: the cotangents have more digits, so it was rounded. What is
 * left of terms that cancel, below 2^26 times their rounding error, has no more digits than a float32
 * number. Inputs that are wrong or inconclusive have other trouble. */
static gd_status keeps_digits(gd_checker *c)
{
    for (int o = 0; o < c->outputs; o++)
        if (c->output[o].real && c->output[o].dtype != GD_FLOAT64) return GD_OK;
    for (int k = 0; k < c->report->inputs; k++) {
        const gd_gradcheck_input *in = &c->report->input[k];
        const int64_t count = c->input[in->index].count;
        int64_t rounded = 0, above = 0;
        if (c->input[in->index].dtype != GD_FLOAT64 || in->wrong || in->inconclusive) continue;
        for (int64_t n = 0; n < c->sets * count && rounded >= 0; n++) {
            const double g = c->analytic[n / count][in->index][n % count];
            rounded = (double)(float)g == g ? rounded + (g != 0) : -1;
        }
        for (int set = 0; set < c->sets && rounded >= 4; set++) {
            const double *moved = gd_check_shake(c, c->cotangent[set], 0x1p-50);
            if (!moved) return gd_error_status(c->ctx);
            for (int64_t e = 0; e < count; e++)
                above += fabs(c->analytic[set][in->index][e]) > 0x1p26 * moved[in->index];
        }
        if (above >= 4)
            gd_check_complain(c, in->index, "all its values are float32 numbers: it was rounded");
    }
    return GD_OK;
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
    gd_expectation e = {.cotangent = u, .gradient = zero, .when = "with a cotangent of zeros"};
    const gd_run plain = {.wanted = NULL};
    for (int i = 0; i < c->inputs; i++) /* a NaN has another cause, which is said already */
        for (int64_t k = 0; c->input[i].wanted && k < c->input[i].count; k++)
            if (isnan(c->analytic[0][i][k])) zero[i][k] = NAN;
    if (finite_outputs(c)) status = expect(c, &plain, &e, 1, NULL);
    for (int set = 0; set < c->sets && !status; set++) {
        if (c->alone[set] < 0) continue;
        u = zero_cotangents(c, c->cotangent[set]);
        if (!u) return GD_ERROR_MEMORY;
        e = (gd_expectation){.cotangent = u,
                             .gradient = c->analytic[set],
                             .when = "with zeros for a missing cotangent"};
        status = expect(c, &plain, &e, 1, NULL);
    }
    return status;
}

/* ---- Wanted gradients, existing gradients, cotangents ------------------------------------- */

/* What gradients hold before a walk, and what they are to be after it. */
typedef struct gd_sums {
    double **held;            /* [inputs] */
    double ***sum;            /* [sets][inputs] held + analytic */
    double **value;           /* [outputs] room for the outputs of a recorded call */
    gd_expectation *expected; /* room for the walks over one tape */
    int *index;               /* [wanted] the inputs that want a gradient, */
    int wanted;               /* at most 31, which have bits in sets */
} gd_sums;

static gd_status make_held(gd_checker *c, gd_sums *s)
{
    gd_status status = gd_check_make_gradients(c, &s->held);
    for (int i = 0; i < c->inputs && !status; i++) {
        const gd_argument *a = &c->input[i];
        if (!a->wanted) continue;
        double largest = largest_of(c->analytic[0][i], a->count);
        /* It is not as small as the rounding of a gradient that is 0. */
        if (gd_check_precision(a->dtype) >= 24)
            largest = fmax(largest, c->options.atol / c->options.rtol * c->unit[0] / a->scale);
        if (!(largest > 0)) largest = 1;
        int exponent; /* what is held has few significant bits, so it is exact in every dtype */
        frexp(largest, &exponent);
        gd_check_normal(s->held[i], a->count, c->options.seed, GD_STREAM_HELD + (uint64_t)i);
        for (int64_t k = 0; k < a->count; k++)
            s->held[i][k] = ldexp(round(s->held[i][k] * 4) / 4 + 0.125, exponent - 3);
    }
    for (int set = 0; set < c->sets && !status; set++) {
        if (set > 0 && c->alone[set] < 0) continue;
        status = gd_check_make_gradients(c, &s->sum[set]);
        for (int i = 0; i < c->inputs && !status; i++)
            for (int64_t k = 0; k < c->input[i].count && c->input[i].wanted; k++)
                s->sum[set][i][k] = s->held[i][k] + c->analytic[set][i][k];
    }
    return status;
}

static gd_status make_sums(gd_checker *c, gd_sums *s)
{
    const int64_t walks = most_walks(c);
    *s = (gd_sums){.sum = gd_check_allocate(c, c->sets, sizeof *s->sum),
                   .value = gd_check_allocate(c, c->outputs, sizeof *s->value),
                   .expected = gd_check_allocate(c, walks, sizeof *s->expected),
                   .index = gd_check_allocate(c, c->inputs, sizeof *s->index)};
    if (!s->sum || !s->value || !s->expected || !s->index) return GD_ERROR_MEMORY;
    for (int i = 0; i < c->inputs; i++)
        if (c->input[i].wanted && s->wanted < 31) s->index[s->wanted++] = i;
    for (int o = 0; o < c->outputs; o++) {
        s->value[o] = gd_check_numbers(c, c->output[o].count);
        if (!s->value[o]) return GD_ERROR_MEMORY;
    }
    return make_held(c, s);
}

/* The names of a set of the wanted inputs, given as bits: "x, weight". */
static gd_text names_of(const gd_checker *c, const gd_sums *s, uint32_t some)
{
    gd_text text = {""};
    for (int k = 0, n = 0; k < s->wanted; k++) {
        const size_t used = strlen(text.text);
        if (!(some >> k & 1)) continue;
        snprintf(text.text + used, sizeof text.text - used, "%s%s", n++ ? ", " : "",
                 c->input[s->index[k]].name);
    }
    return text;
}

static uint32_t every_second(uint32_t all)
{
    return UINT32_C(0x55555555) & all;
}

/* When is it: with the gradients of `some` wanted, those of `old` existing, and the set's
 * cotangents? */
static void say_when(const gd_checker *c, const gd_sums *s, uint32_t some, uint32_t old, int set,
                     char *when, size_t size)
{
    const uint32_t all = (UINT32_C(1) << s->wanted) - 1;
    const bool part = some != all;
    char output[48] = "";
    if (c->alone[set] >= 0)
        snprintf(output, sizeof output, ", with a gradient for output %d alone", c->alone[set]);
    if (part)
        snprintf(when, size, "when only %.100s requires a gradient", names_of(c, s, some).text);
    const size_t used = part ? strlen(when) : 0;
    char *rest = when + used;
    size -= used;
    if (!old)
        snprintf(rest, size, "%s", output);
    else if (old == some)
        snprintf(rest, size, "%s%s",
                 part ? ", added to one that exists" : "when added to an existing gradient",
                 output);
    else if (old == every_second(all) && !part)
        snprintf(rest, size, "when only every second gradient exists");
    else
        snprintf(rest, size, "%s only that of %.80s exists%s", part ? " and" : "when",
                 names_of(c, s, old).text, output);
}

/* Adds a walk to the list. */
static gd_status add_walk(gd_checker *c, gd_sums *s, int *count, uint32_t some, uint32_t old,
                          int set)
{
    double **held = gd_check_allocate(c, c->inputs, sizeof *held);
    double **wanted = gd_check_allocate(c, c->inputs, sizeof *wanted);
    if (!held || !wanted) return GD_ERROR_MEMORY;
    gd_expectation *e = &s->expected[(*count)++];
    *e = (gd_expectation){.cotangent = c->cotangent[set], .gradient = wanted, .held = held};
    e->same = old ? CLOSE : BITS_IF_CLAIMED;
    for (int i = 0; i < c->inputs; i++) wanted[i] = c->analytic[set][i];
    for (int k = 0; k < s->wanted; k++) {
        const int i = s->index[k];
        const bool exists = old >> k & 1;
        held[i] = exists ? s->held[i] : NULL;
        wanted[i] = exists ? s->sum[set][i] : c->analytic[set][i];
    }
    say_when(c, s, some, old, set, e->when, sizeof e->when);
    return GD_OK;
}

/* The walks over the tape of a call of which `some` gradients are wanted: that of none, and each
 * that may hold something already, with each set of cotangents. With many inputs only all of
 * `some`, and every second one of all. */
static gd_status list_walks(gd_checker *c, gd_sums *s, uint32_t some, int *count)
{
    const uint32_t all = (UINT32_C(1) << s->wanted) - 1;
    gd_status status = GD_OK;
    for (int set = 0; set < c->sets && !status; set++) {
        if (set > 0 && c->alone[set] < 0) continue;
        if (some != all || !set) status = add_walk(c, s, count, some, 0, set);
        if (!set && some == all) { /* and again */
            gd_expectation *e = &s->expected[0];
            e[1] = e[0];
            for (int k = 0; k < 2; k++) e[k].same = BITS, e[k].repeat = true;
            snprintf(e[0].when, sizeof e->when, "a second run gives different bits");
            snprintf(e[1].when, sizeof e->when,
                     "a second backward over the same tape gives different bits");
            *count = 2;
        }
        if (!status) status = add_walk(c, s, count, some, some, set);
        if (set > 0) continue;
        for (uint32_t old = 1; s->wanted <= 3 && old < some && !status; old++)
            if (!(old & ~some)) status = add_walk(c, s, count, some, old, set);
        if (s->wanted > 3 && some == all && !status)
            status = add_walk(c, s, count, some, every_second(all), set);
    }
    return status;
}

/* The outputs must not depend on whether the op is recorded. */
static void compare_outputs(gd_checker *c, double *const *y)
{
    for (int o = 0; o < c->outputs; o++) /* base was computed from `measured`, not the leaves */
        if (c->output[o].measured != c->output[o].dtype) return;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        for (int64_t k = 0; k < r->count && r->real; k++) {
            if (y[o][k] == r->base[k] || (isnan(y[o][k]) && isnan(r->base[k]))) continue;
            const int digits = digits_of(r->dtype);
            gd_check_complain(c, -1, "output %d%s is %.*g when recorded, %.*g when not", o,
                              gd_check_place(r->ndim, r->shape, k).text, digits, y[o][k], digits,
                              r->base[k]);
            return;
        }
    }
}

/* What one gradient is, and whether it is added, must depend on nothing but its own flags: checks
 * every subset of up to 5 wanted gradients (of more, each alone and all but each), with gradients
 * that exist and with cotangents that do not. All that share a tape are walks over it. */
static gd_status takes_subsets(gd_checker *c)
{
    gd_sums s;
    gd_status status = make_sums(c, &s);
    bool *wanted = gd_check_allocate(c, c->inputs, sizeof *wanted);
    if (!wanted || status) return GD_ERROR_MEMORY;
    const int n = s.wanted, subsets = n < 2 ? 0 : n <= 5 ? (1 << n) - 2 : 2 * n;
    const uint32_t all = (UINT32_C(1) << n) - 1;
    for (int k = 0; k <= subsets && !status; k++) {
        const uint32_t one = UINT32_C(1) << (k + n - 1) % n;
        uint32_t some = (uint32_t)k;
        int walks = 0;
        if (n > 5) some = k <= n ? one : all & ~one;
        if (k == 0) some = all;
        for (int i = 0; i < n; i++) wanted[s.index[i]] = some >> i & 1;
        status = list_walks(c, &s, some, &walks);
        const gd_run run = {.wanted = k ? wanted : NULL, .values = k ? NULL : s.value};
        if (!status) status = expect(c, &run, s.expected, walks, NULL);
        if (!status && k == 0) compare_outputs(c, s.value);
    }
    return status;
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* Overwrites what the record does not declare as read; the gradients must not change. */
static gd_status declares(gd_checker *c, bool *kept)
{
    c->probe->spoil = true;
    gd_status status =
        expect_same(c, &(gd_run){.wanted = NULL}, BITS,
                    "the backward reads something that the record does not declare", kept);
    c->probe->spoil = false;
    return status;
}

/* Results must not depend on the number of threads. */
static gd_status takes_threads(gd_checker *c)
{
    const gd_run plain = {.wanted = NULL};
    c->probe->threads = 1;
    gd_status status = expect_same(c, &plain, BITS, "with 1 thread", NULL);
    c->probe->threads = 3;
    if (!status) status = expect_same(c, &plain, BITS, "with 3 threads", NULL);
    c->probe->threads = 0;
    return status;
}

/* What the backward needs must be in inputs, outputs and saves, which belong to one call. */
static gd_status keeps_nothing_elsewhere(gd_checker *c)
{
    const gd_run run = {.interrupted = true};
    return expect_same(c, &run, BITS, "when the op ran on other data before the backward", NULL);
}

/* With inputs made by ops the tape may write dx over dy or over x, if the record allows it. */
static gd_status shares_memory(gd_checker *c)
{
    static const gd_run runs[] = {{.op_made_inputs = true},
                                  {.op_made_inputs = true, .op_made_outputs = true},
                                  {.op_made_outputs = true}};
    gd_status status = GD_OK;
    for (size_t i = 0; i < sizeof runs / sizeof *runs && !status; i++)
        status = expect_same(c, &runs[i], CLOSE, "when the tape may reuse memory", NULL);
    return status;
}

static gd_status takes_strides(gd_checker *c)
{
    gd_run run = {.strided = true};
    gd_status status = expect_same(c, &run, CLOSE, "with strided inputs and cotangents", NULL);
    run.reversed = true;
    if (status) return status;
    return expect_same(c, &run, CLOSE, "with transposed inputs and cotangents", NULL);
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
    status = gd_check_backward(c, c->cotangent[0], separate);
    bool finite = true;
    for (int64_t k = 0; k < from->count; k++) {
        sum[i][k] = separate[i][k] + separate[j][k];
        finite = finite && isfinite(sum[i][k]);
    }
    bool *wanted = gd_check_allocate(c, c->inputs, sizeof *wanted);
    if (!wanted) status = GD_ERROR_MEMORY;
    if (!status) wanted[i] = true;
    const gd_run run = {.same_from = i, .same_to = j, .wanted = wanted};
    gd_expectation e = {.cotangent = c->cotangent[0],
                        .gradient = sum,
                        .when = "with the same tensor as two inputs"};
    if (!status && finite) status = expect(c, &run, &e, 1, NULL);
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

gd_status gd_check_by_ops(gd_checker *c, const char *whose)
{
    gd_status status = GD_OK;
    c->got = gd_check_allocate(c, 1, sizeof *c->got);
    if (!c->got) return GD_ERROR_MEMORY;
    for (int set = 0; set < c->sets && !status; set++) {
        gd_expectation e = {
            .cotangent = c->cotangent[set], .gradient = c->analytic[set], .repeat = true};
        snprintf(e.when, sizeof e.when, "the gradient by %s", whose);
        status = expect(c, &(gd_run){.by_ops = true}, &e, 1, NULL);
    }
    return status;
}

gd_status gd_check_behaviour(gd_checker *c)
{
    c->got = gd_check_allocate(c, most_walks(c), sizeof *c->got);
    if (!c->got) return GD_ERROR_MEMORY;
    gd_status status = keeps_digits(c);
    if (!status) status = takes_subsets(c);
    if (!status) status = takes_cotangents(c);
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
