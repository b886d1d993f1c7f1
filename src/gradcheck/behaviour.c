/* behaviour.c - everything about a backward but its numbers: each check runs it in another way and
 * compares with the gradients computed before. The comparison is bitwise, except where the
 * arithmetic may legitimately differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"
#include "platform/number.h"

/* The digits that distinguish any two numbers of a dtype. */
static int digits_of(gd_dtype dtype)
{
    return dtype == GD_FLOAT64 ? 17 : 9;
}

/* What element k of the gradient of input i is to be. */
static double expected(const gd_argument *a, const gd_walk *w, int64_t k)
{
    const double right = w->right[a->first + k];
    return a->bit & w->exist ? w->held[a->first + k] + right : right;
}

/* Whether a gradient is as expected, to the bit or within rounding; *at is the first element
 * that is not. */
static bool equal(const gd_checker *c, const gd_walk *w, bool bitwise, int i, int64_t *at)
{
    const gd_argument *a = &c->input[i];
    double size = a->bit & w->exist ? gd_check_largest(w->held + a->first, a->count) : 0;
    for (int64_t k = 0; k < a->count && !bitwise; k++)
        if (isfinite(expected(a, w, k))) size = fmax(size, fabs(expected(a, w, k)));
    const gd_accuracy *of = &gd_check_accuracy[c->dtype];
    double most = of->close * size + (w->noise ? 8 * w->noise[i] : 0);
    if (w->by_ops) most += 8 * of->rounding * c->set[0].unit / a->scale; /* of terms that cancel */
    for (*at = 0; *at < a->count; ++*at) {
        const double got = w->gradient[a->first + *at], right = expected(a, w, *at);
        if (!memcmp(&got, &right, sizeof got)) continue;
        if (isnan(right) && (isnan(got) || !w->repeat)) continue;
        if (!bitwise && gd_check_overflows(a->spec.dtype, got, right)) continue;
        if (bitwise || !(got == right || fabs(got - right) <= most)) return false;
    }
    return true;
}

/* Compares the gradient of input i, and complains or remarks on it. Whether it is as expected. */
static bool compare(gd_checker *c, gd_walk *w, int i)
{
    const gd_argument *a = &c->input[i];
    const bool claimed = c->f.op && c->f.op->same_bits;
    const bool bitwise = w->same == GD_BITS || (w->same == GD_BITS_IF_CLAIMED && claimed);
    int64_t at, bit = -1;
    if (w->same == GD_BITS_IF_CLAIMED && !bitwise && !equal(c, w, true, i, &at)) bit = at;
    bool fine = equal(c, w, bitwise, i, &at);
    if (!fine && !bitwise && !w->noise) {
        const double by = gd_check_accuracy[c->dtype].close;
        const double *ops = w->by_ops ? gd_check_shake(c, w->cotangent, by, true) : NULL;
        double *noise = gd_check_shake(c, w->cotangent, by, false);
        if (!noise) return false;
        for (int k = 0; k < c->inputs && ops; k++) noise[k] = fmax(noise[k], ops[k]);
        w->noise = noise;
        fine = equal(c, w, false, i, &at);
    }
    if (fine && bit < 0) return true;
    if (fine) at = bit;
    const int digits = bitwise || fine ? digits_of(a->spec.dtype) : 9;
    char text[512];
    gd_os_print(text, sizeof text, "%s: %s%s is %.*g instead of %.*g", w->when, a->name,
                gd_check_indices(&a->spec, at).text, digits, w->gradient[a->first + at], digits,
                expected(a, w, at));
    gd_gradcheck_input *in = gd_check_report_on(c, i);
    if (!fine)
        gd_check_complain(c, i, "%s", text);
    else if (!in->remark[0])
        gd_check_say(in->remark, sizeof in->remark,
                     "%s, it differs by rounding: compute each gradient in a loop of its own",
                     text);
    return fine;
}

/* As many as may share a tape: two plain ones and seven subsets of three that exist, and two with
 * each output's cotangent alone. */
static int most_walks(const gd_checker *c)
{
    return 9 + 2 * c->sets;
}

/* Runs, walks for each of the list and compares; complains about the first input that differs.
 * Whether none does. */
static bool expect(gd_checker *c, gd_run run, gd_walk *list, int count)
{
    bool all = true;
    run.walk = list;
    run.walks = count;
    for (int k = 0; k < count; k++) { /* the memory is that of all runs */
        if (!c->got[k] && !(c->got[k] = gd_check_gradient(c))) return false;
        list[k].gradient = c->got[k];
    }
    gd_check_run(c, &run);
    for (int k = 0; k < count; k++)
        for (int i = 0; i < c->inputs && !gd_check_failed(c); i++)
            if (c->input[i].wanted && gd_check_requires(c, &run, i))
                all = compare(c, &list[k], i) && all;
    return all;
}

/* One walk, with the first cotangents and the gradients that they gave before. */
static bool expect_same(gd_checker *c, gd_run run, gd_sameness same, const char *when)
{
    gd_walk w = {.cotangent = c->set[0].cotangent, .right = c->set[0].gradient, .same = same};
    snprintf(w.when, sizeof w.when, "%s", when);
    return expect(c, run, &w, 1);
}

/* A float64 gradient of float32 values: the cotangents have more digits, so it was rounded. What is
 * left of terms that cancel, below 2^26 times their rounding error, has no more digits than a
 * float32 number. Inputs that are wrong or inconclusive have other trouble. */
static void keeps_digits(gd_checker *c)
{
    for (int o = 0; o < c->outputs; o++)
        if (c->output[o].real && c->output[o].spec.dtype != GD_FLOAT64) return;
    for (int k = 0; k < c->report->inputs; k++) {
        const gd_gradcheck_input *in = &c->report->input[k];
        const gd_argument *a = &c->input[in->index];
        int64_t rounded = 0, above = 0;
        if (a->spec.dtype != GD_FLOAT64 || in->wrong || in->inconclusive) continue;
        for (int64_t n = 0; n < c->sets * a->count && rounded >= 0; n++) {
            const double g = c->set[n / a->count].gradient[a->first + n % a->count];
            rounded = (double)(float)g == g ? rounded + (g != 0) : -1;
        }
        for (int set = 0; set < c->sets && rounded >= 4; set++) {
            const double *moved = gd_check_shake(c, c->set[set].cotangent, 0x1p-50, false);
            for (int64_t e = 0; e < a->count && moved; e++)
                above += fabs(c->set[set].gradient[a->first + e]) > 0x1p26 * moved[in->index];
        }
        if (above >= 4)
            gd_check_complain(c, in->index, "all its values are float32 numbers: it was rounded");
    }
}

/* ---- Cotangents --------------------------------------------------------------------------- */

/* Zero cotangents for all outputs, or for those that have none in `given`. NULL on error. */
static double **zero_cotangents(gd_checker *c, double *const *given)
{
    double **u = gd_check_allocate(c, c->outputs, sizeof *u);
    for (int o = 0; o < c->outputs && u; o++)
        if (c->output[o].real)
            u[o] = given && given[o] ? given[o] : gd_check_numbers(c, c->output[o].count);
    return gd_check_failed(c) ? NULL : u;
}

static bool finite_outputs(const gd_checker *c)
{
    for (int o = 0; o < c->outputs; o++)
        for (int64_t k = 0; k < c->output[o].count && c->output[o].real; k++)
            if (!isfinite(c->output[o].base[k])) return false;
    return true;
}

static void takes_cotangents(gd_checker *c)
{
    double *zero = gd_check_gradient(c), **u = zero_cotangents(c, NULL);
    if (!u) return;
    gd_walk w = {.cotangent = u, .right = zero, .when = "with a cotangent of zeros"};
    for (int64_t k = 0; k < c->length; k++)
        if (isnan(c->set[0].gradient[k])) zero[k] = NAN;
    if (finite_outputs(c)) expect(c, (gd_run){.walks = 1}, &w, 1);
    for (int set = 0; set < c->sets; set++) {
        if (c->set[set].alone < 0) continue;
        u = zero_cotangents(c, c->set[set].cotangent);
        if (!u) return;
        w = (gd_walk){.cotangent = u,
                      .right = c->set[set].gradient,
                      .when = "with zeros for a missing cotangent"};
        expect(c, (gd_run){.walks = 1}, &w, 1);
    }
}

/* ---- Wanted gradients, existing gradients, cotangents ------------------------------------- */

/* What gradients hold before a walk. */
static double *make_held(gd_checker *c)
{
    double *all = gd_check_gradient(c);
    for (int i = 0; i < c->inputs && all; i++) {
        const gd_argument *a = &c->input[i];
        if (!a->wanted) continue;
        double *held = all + a->first;
        double largest = gd_check_largest(c->set[0].gradient + a->first, a->count);
        /* It is not as small as the rounding of a gradient that is 0. */
        if (gd_dtype_size(a->spec.dtype) > 2)
            largest = fmax(largest, c->options.atol / c->options.rtol * c->set[0].unit / a->scale);
        if (!(largest > 0)) largest = 1;
        int exponent; /* what is held has few significant bits, so it is exact in every dtype */
        frexp(largest, &exponent);
        gd_check_normal(held, a->count, c->options.seed, GD_STREAM_HELD + (uint64_t)i);
        for (int64_t k = 0; k < a->count; k++)
            held[k] = ldexp(round(held[k] * 4) / 4 + 0.125, exponent - 3);
    }
    return all;
}

/* The names of some of the inputs: "x, weight". */
static gd_text names_of(const gd_checker *c, uint32_t some)
{
    gd_text text = {""};
    for (int i = 0; i < c->inputs; i++)
        if (c->input[i].bit & some)
            gd_check_write(&text, "%s%s", *text.text ? ", " : "", c->input[i].name);
    return text;
}

static uint32_t all_inputs(const gd_checker *c)
{
    return (UINT32_C(1) << c->bits) - 1;
}

static uint32_t every_second(uint32_t all)
{
    return UINT32_C(0x55555555) & all;
}

/* Says when: with the gradients of `some` wanted, the gradients of `old` existing, and the set's
 * cotangents. */
static void say_when(const gd_checker *c, uint32_t some, uint32_t old, int set, gd_walk *w)
{
    const bool part = some != all_inputs(c);
    const size_t size = sizeof w->when;
    if (part)
        gd_check_say(w->when, size, "when only %.100s requires a gradient", names_of(c, some).text);
    if (old == some)
        gd_check_say(w->when, size, "%s",
                     part ? ", added to one that exists" : "when added to an existing gradient");
    else if (old)
        gd_check_say(w->when, size, "%s only that of %.80s exists", part ? " and" : "when",
                     names_of(c, old).text);
    if (c->set[set].alone >= 0)
        gd_check_say(w->when, size, ", with a gradient for output %d alone", c->set[set].alone);
}

/* Adds a walk to the list. */
static void add_walk(const gd_checker *c, const gd_walk *with, gd_walk *list, int *count,
                     uint32_t some, uint32_t old, int set)
{
    gd_walk *w = &list[(*count)++];
    *w = *with;
    w->cotangent = c->set[set].cotangent;
    w->right = c->set[set].gradient;
    w->exist = old;
    w->same = old ? GD_CLOSE : GD_BITS_IF_CLAIMED;
    say_when(c, some, old, set, w);
}

/* The walks over the tape of a call of which `some` gradients are wanted: that of none, and each
 * that may hold something already, with each set of cotangents. With many inputs only all of
 * `some`, and every second one of all. Returns their number. */
static int list_walks(const gd_checker *c, const gd_walk *with, uint32_t some, gd_walk *list)
{
    const uint32_t all = all_inputs(c);
    int count = 0;
    for (int set = 0; set < c->sets; set++) {
        if (set > 0 && c->set[set].alone < 0) continue;
        if (some != all || !set) add_walk(c, with, list, &count, some, 0, set);
        if (!set && some == all) { /* and again */
            list[0].same = GD_BITS, list[0].repeat = true;
            list[1] = list[0];
            snprintf(list[0].when, sizeof list->when, "a second run gives different bits");
            snprintf(list[1].when, sizeof list->when,
                     "a second backward over the same tape gives different bits");
            count = 2;
        }
        add_walk(c, with, list, &count, some, some, set);
        if (set > 0) continue;
        for (uint32_t old = 1; c->bits <= 3 && old < some; old++)
            if (!(old & ~some)) add_walk(c, with, list, &count, some, old, set);
        if (c->bits > 3 && some == all)
            add_walk(c, with, list, &count, some, every_second(all), set);
    }
    return count;
}

/* The outputs, in `plus`, must not depend on whether the op is recorded. */
static void compare_outputs(gd_checker *c)
{
    for (int o = 0; o < c->outputs; o++) /* base was computed from `measured`, not the leaves */
        if (c->output[o].measured != c->output[o].spec.dtype) return;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        const int digits = digits_of(r->spec.dtype);
        for (int64_t k = 0; k < r->count && r->real; k++) {
            const double y = r->plus[k], base = r->base[k];
            if (y == base || (isnan(y) && isnan(base))) continue;
            gd_check_complain(c, -1, "output %d%s is %.*g when recorded, %.*g when not", o,
                              gd_check_indices(&r->spec, k).text, digits, y, digits, base);
            return;
        }
    }
}

/* What one gradient is, and whether it is added, must depend on nothing but its own flags: checks
 * every subset of up to 5 wanted gradients (of more, each alone and all but each), with gradients
 * that exist and with cotangents that do not. All that share a tape are walks over it. */
static void takes_subsets(gd_checker *c)
{
    const gd_walk with = {.held = make_held(c)};
    gd_walk *list = gd_check_allocate(c, most_walks(c), sizeof *list);
    const int n = c->bits, subsets = n < 2 ? 0 : n <= 5 ? (1 << n) - 2 : 2 * n;
    for (int k = 0; k <= subsets && !gd_check_failed(c); k++) {
        const uint32_t one = UINT32_C(1) << (k + n - 1) % n;
        uint32_t some = (uint32_t)k;
        if (n > 5) some = k <= n ? one : all_inputs(c) & ~one;
        if (k == 0) some = all_inputs(c);
        const int walks = list_walks(c, &with, some, list);
        expect(c, (gd_run){.some = k ? some : 0, .outputs = !k}, list, walks);
        if (k > 0 && c->f.function && gd_check_failed(c) && c->status != GD_ERROR_MEMORY) {
            /* It contains a gradient by an input that requires none in this run. */
            gd_error_clear(c->ctx);
            c->status = GD_OK;
            return;
        }
        if (k == 0 && !gd_check_failed(c)) compare_outputs(c);
    }
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* f(x, x): the gradient of x is the sum of both arguments' gradients. */
static void takes_same_twice(gd_checker *c, int i, int j)
{
    gd_argument *from = &c->input[i], *to = &c->input[j];
    double *own = to->value, *separate = gd_check_gradient(c), *sum = gd_check_gradient(c);
    if (!separate || !sum) return;
    gd_tensor_write_f64(to->leaf, from->value, to->count);
    to->value = from->value;
    gd_check_backward(c, c->set[0].cotangent, separate);
    bool finite = true;
    for (int64_t k = 0; k < from->count; k++) {
        const double both = separate[from->first + k] + separate[to->first + k];
        sum[from->first + k] = both;
        finite = finite && isfinite(both);
    }
    const gd_run run = {.same_from = i, .same_to = j, .some = from->bit};
    gd_walk w = {.cotangent = c->set[0].cotangent,
                 .right = sum,
                 .when = "with the same tensor as two inputs"};
    if (finite) expect(c, run, &w, 1);
    to->value = own;
    gd_tensor_write_f64(to->leaf, own, to->count);
}

static void takes_same(gd_checker *c)
{
    for (int j = 1; j < c->inputs; j++) {
        for (int i = 0; i < j; i++) {
            const gd_argument *a = &c->input[i], *b = &c->input[j];
            if (!a->wanted || !b->wanted || !gd_check_same_shape(&a->spec, &b->spec)) continue;
            takes_same_twice(c, i, j);
            return;
        }
    }
}

/* Overwrites what the record does not declare as read: whether the gradients stay. */
static bool declares(gd_checker *c)
{
    c->f.probe->spoil = true;
    const bool kept = expect_same(c, (gd_run){.walks = 1}, GD_BITS,
                                  "the backward reads something that the record does not declare");
    c->f.probe->spoil = false;
    return kept;
}

/* The ways to run an op that must not change its gradients. What the backward needs must be in
 * inputs, outputs and saves, which belong to one call. */
static void runs_in_any_way(gd_checker *c)
{
    /* It may write dx over dy or over x, if the record allows it. */
    static const char reuse[] = "when the tape may reuse memory";
    static const struct {
        gd_run run;
        gd_sameness same;
        int threads;
        const char *when;
    } ways[] = {
        {{.op_made_inputs = true}, GD_CLOSE, 0, reuse},
        {{.op_made_inputs = true, .op_made_outputs = true}, GD_CLOSE, 0, reuse},
        {{.op_made_outputs = true}, GD_CLOSE, 0, reuse},
        {{.some = 0}, GD_BITS, 1, "with 1 thread"},
        {{.some = 0}, GD_BITS, 3, "with 3 threads"},
        {{.interrupted = true}, GD_BITS, 0, "when the op ran on other data before the backward"},
        {{.strided = true}, GD_CLOSE, 0, "with strided inputs and cotangents"},
        {{.strided = true, .reversed = true}, GD_CLOSE, 0, "with transposed inputs and cotangents"},
    };
    const bool declared = declares(c); /* else a reuse would lose what is read */
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].when == reuse && !declared) continue;
        c->f.probe->threads = ways[i].threads;
        expect_same(c, ways[i].run, ways[i].same, ways[i].when);
    }
    c->f.probe->threads = 0;
    takes_same(c);
}

/* ---- All ---------------------------------------------------------------------------------- */

void gd_check_by_ops(gd_checker *c, const char *whose)
{
    c->got = gd_check_allocate(c, 1, sizeof *c->got);
    for (int set = 0; set < c->sets && c->got; set++) {
        gd_walk w = {.cotangent = c->set[set].cotangent,
                     .right = c->set[set].gradient,
                     .repeat = true,
                     .by_ops = true};
        snprintf(w.when, sizeof w.when, "the gradient by %s", whose);
        expect(c, (gd_run){.walks = 1}, &w, 1);
    }
}

void gd_check_behaviour(gd_checker *c)
{
    c->got = gd_check_allocate(c, most_walks(c), sizeof *c->got);
    if (!c->got) return;
    keeps_digits(c);
    takes_subsets(c);
    takes_cotangents(c);
    /* Only for ops: a user's function may access its inputs in other ways. */
    if (c->f.probe) runs_in_any_way(c);
}
