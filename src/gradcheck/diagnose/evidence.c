/* evidence.c - what a finding is verified against: the Jacobian.
 *
 * A backward is linear in dy, so cotangents with a single 1 give its Jacobian column by column, and
 * the perturbed inputs give the true one row by row. Where that is too much, or where there are
 * several outputs, random cotangents take their place: a statement on whole rows of the Jacobian
 * that holds for eight of them, and for those of the check, holds for all. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"

enum { MOST_COLUMNS = 1024, MOST_ENTRIES = 1 << 18, RANDOM_PROBES = 8 };

/* ---- The cotangents ----------------------------------------------------------------------- */

static bool can_be_one_hot(const gd_evidence *s)
{
    const gd_checker *c = s->c;
    const int64_t columns = c->output[0].count;
    return c->outputs == 1 && columns <= MOST_COLUMNS && s->count * columns <= MOST_ENTRIES &&
           s->rtol < 5e-3; /* 16 bits are not enough */
}

/* The cotangents of a probe: a single 1, or random ones for the outputs that have one in the
 * check. */
static double **make_probe(const gd_evidence *s, int probe)
{
    gd_checker *c = s->c;
    double **u = gd_check_allocate(c, c->outputs, sizeof *u);
    for (int o = 0; o < c->outputs && u && !s->one_hot; o++) {
        const uint64_t stream = GD_STREAM_PROBE + 50 * (uint64_t)probe + (uint64_t)o;
        if (s->of[0].cotangent[o]) u[o] = gd_check_cotangent(c, o, stream);
    }
    if (u && s->one_hot) u[0] = gd_check_numbers(c, c->output[0].count);
    if (u && u[0] && s->one_hot) u[0][probe] = 1;
    return u;
}

/* The gradients for the probes' cotangents. */
static void run_backwards(gd_evidence *s)
{
    double *all = gd_check_gradient(s->c);
    for (int k = 0; k < s->sets - s->measured && !gd_check_failed(s->c); k++) {
        const gd_columns *of = &s->of[s->measured + k];
        const double *g = all + s->argument->first;
        gd_check_backward(s->c, of->cotangent, all);
        for (int64_t e = 0; e < s->count; e++) of->analytic[e] = g[s->at[e]];
        for (int64_t i = 0; i < s->argument->count && s->one_hot; i++) {
            s->used[k] = s->used[k] || g[i] != 0;
            s->strays = s->strays || (g[i] != 0 && i != k);
        }
    }
}

/* Whether the backward gives the same twice; if not, nothing can be said of it. */
static bool repeats(const gd_evidence *s)
{
    double *gradient = gd_check_gradient(s->c);
    bool yes = true;
    gd_check_backward(s->c, s->of[s->set].cotangent, gradient);
    for (int64_t e = 0; e < s->count && !gd_check_failed(s->c); e++)
        yes = yes && gradient[s->argument->first + s->at[e]] == s->of[s->set].analytic[e];
    return yes && !gd_check_failed(s->c);
}

/* ---- The function's slopes ---------------------------------------------------------------- */

void gd_check_probe_slopes(const gd_evidence *s, int input, int64_t element, double h,
                           gd_slope *slope)
{
    gd_checker *c = s->c;
    const gd_move move = {.input = input, .element = element};
    const int sets = c->sets;
    for (int o = 0; o < c->outputs; o++) /* what does not move with this element is exact */
        memset(c->output[o].moves, 0, (size_t)c->output[o].count);
    c->sets += s->sets - s->measured;
    gd_check_slopes(c, &move, h);
    c->sets = sets;
    for (int set = 0; set < s->sets; set++) {
        const bool probe = set >= s->measured;
        slope[set] = c->set[probe ? sets + set - s->measured : s->first + set].slope;
        /* It depends, though it is as far up on one side as down on the other. */
        if (probe && s->one_hot && slope[set].central == 0 && slope[set].left != 0)
            slope[set].central = DBL_MIN;
    }
}

/* Slopes for the probes at one element, from two steps, and their error; infinite if they do not
 * agree with those of the check. */
static double measure_with(gd_evidence *s, int64_t e, double h)
{
    gd_slope *coarse = s->slopes, *fine = coarse + s->sets;
    double error = 0;
    gd_check_probe_slopes(s, s->input, s->at[e], h, coarse);
    gd_check_probe_slopes(s, s->input, s->at[e], h / 4, fine);
    for (int set = 0; set < s->sets; set++) {
        const gd_columns *of = &s->of[set];
        const double apart = fine[set].central - coarse[set].central;
        const double value = fine[set].central + apart / 15;
        const bool probe = set >= s->measured;
        /* What moved within a longer step, and does not within these, is lost in rounding. */
        const bool lost = probe && value == 0 && of->numeric[e] != 0 && !s->c->f.kinks;
        if (probe && !lost) {
            of->numeric[e] = value;
            error = fmax(error, fabs(apart) / 3 + fine[set].noise);
        }
        if (!isfinite(value) || lost ||
            (!probe && !(fabs(value - of->numeric[e]) <= s->rtol * of->scale)))
            error = INFINITY;
    }
    return error;
}

static double largest_of(const gd_evidence *s)
{
    double largest = 0;
    for (int set = s->measured; set < s->sets; set++) /* what is skipped is not measured: 0 */
        largest = fmax(largest, gd_check_largest(s->of[set].numeric, s->count));
    return largest;
}

/* Measures all elements; those whose slopes are not accurate again with shorter steps. */
static void measure(gd_evidence *s)
{
    enum { TRIES = 6 };
    double h = s->c->options.step, *error = gd_check_numbers(s->c, s->count);
    for (int64_t e = 0; e < s->count && error; e++) error[e] = s->skip[e] ? 0 : INFINITY;
    for (int try = 0; try < TRIES && !s->sure && !gd_check_failed(s->c); try++, h /= 16) {
        const double tolerance = s->rtol * largest_of(s);
        for (int64_t e = 0; e < s->count; e++)
            if (!(error[e] <= tolerance)) error[e] = measure_with(s, e, h);
        s->sure = true;
        const double most = s->rtol * largest_of(s);
        for (int64_t e = 0; e < s->count; e++) s->sure = s->sure && error[e] <= most;
    }
}

/* ---- All ---------------------------------------------------------------------------------- */

/* Finds the elements that are wrong with any cotangents. Errors of probes are relative to the
 * largest slope of all, and a finding must explain nearly all of the largest error. */
static void judge(gd_evidence *s)
{
    double largest = largest_of(s), most = 0;
    if (largest == 0) largest = s->of[s->set].scale;
    for (int set = s->measured; set < s->sets; set++) {
        for (int64_t e = 0; e < s->count; e++) {
            const double ours = s->of[set].analytic[e];
            const double gap = fabs(ours - s->of[set].numeric[e]);
            s->sure = s->sure && isfinite(ours);
            if (s->skip[e]) continue;
            most = fmax(most, gap);
            s->wrong[e] = s->wrong[e] || !(gap <= 2 * s->rtol * largest);
        }
    }
    for (int set = s->measured; set < s->sets; set++) {
        s->of[set].scale = largest;
        s->of[set].slack = fmin(s->rtol * largest, most / 50);
    }
}

void gd_check_evidence(gd_evidence *s)
{
    gd_checker *c = s->c;
    if (!repeats(s)) return;
    s->one_hot = can_be_one_hot(s);
    const int probes = s->one_hot ? (int)c->output[0].count : RANDOM_PROBES;
    s->sets = s->measured + probes;
    s->used = gd_check_allocate(c, probes, sizeof *s->used);
    s->slopes = gd_check_allocate(c, 2 * (int64_t)s->sets, sizeof *s->slopes);
    /* Those of the check come first. */
    gd_set *set = gd_check_allocate(c, c->sets + probes, sizeof *set);
    gd_columns *of = gd_check_allocate(c, s->sets, sizeof *of);
    if (gd_check_failed(c)) return;
    memcpy(set, c->set, (size_t)c->sets * sizeof *set);
    memcpy(of, s->of, (size_t)s->measured * sizeof *of);
    for (int probe = 0; probe < probes && !gd_check_failed(c); probe++) {
        set[c->sets + probe].cotangent = make_probe(s, probe);
        of[s->measured + probe] = (gd_columns){.cotangent = set[c->sets + probe].cotangent,
                                               .analytic = gd_check_numbers(c, s->count),
                                               .numeric = gd_check_numbers(c, s->count)};
    }
    c->set = set, s->of = of;
    if (gd_check_failed(c)) return;
    run_backwards(s);
    measure(s);
    judge(s);
}
