/* evidence.c - what a finding is verified against: the Jacobian.
 *
 * A backward is linear in dy, so cotangents with a single 1 give its Jacobian column by column, and
 * the perturbed inputs give the true one row by row. Where that is too much, or where there are
 * several outputs, random cotangents take their place: a statement on whole rows of the Jacobian
 * that holds for eight of them, and for those of the check, holds for all. */
#include <float.h>
#include <math.h>
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

static gd_status make_probe(gd_evidence *s, int probe)
{
    gd_checker *c = s->c;
    double **u = gd_check_allocate(c, c->outputs, sizeof *u);
    if (!u) return GD_ERROR_MEMORY;
    s->cotangent[s->measured + probe] = u;
    for (int o = 0; o < c->outputs; o++) {
        if (!s->cotangent[0][o]) continue;
        u[o] = gd_check_cotangent(c, o, GD_STREAM_PROBE + 50 * (uint64_t)probe + (uint64_t)o);
        if (!u[o]) return GD_ERROR_MEMORY;
    }
    return GD_OK;
}

/* The gradients for a probe's cotangents. */
static gd_status ask_backward(gd_evidence *s, int set, double *const *cotangent, double **gradient)
{
    gd_status status = gd_check_backward(s->c, cotangent, gradient);
    const double *g = gradient[s->input];
    for (int64_t e = 0; e < s->count && !status; e++) s->analytic[set][e] = g[s->at[e]];
    for (int64_t i = 0; i < s->argument->count && s->one_hot && !status; i++) {
        const int64_t k = set - s->measured;
        if (g[i] == 0) continue;
        s->used[k] = true;
        s->strays = s->strays || i != k;
    }
    return status;
}

static gd_status ask_backwards(gd_evidence *s)
{
    gd_checker *c = s->c;
    double **gradient, *dy = gd_check_numbers(c, c->output[0].count);
    gd_status status = gd_check_make_gradients(c, &gradient);
    if (!dy || status) return GD_ERROR_MEMORY;
    for (int set = s->measured; set < s->sets && !status; set++) {
        const int64_t k = set - s->measured;
        if (s->one_hot) {
            dy[k] = 1;
            status = ask_backward(s, set, &dy, gradient);
            dy[k] = 0;
        } else {
            status = ask_backward(s, set, s->cotangent[set], gradient);
        }
    }
    return status;
}

/* Whether the backward gives the same twice; if not, nothing can be said of it. */
static gd_status repeats(const gd_evidence *s, bool *yes)
{
    double **gradient;
    gd_status status = gd_check_make_gradients(s->c, &gradient);
    if (!status) status = gd_check_backward(s->c, s->cotangent[s->set], gradient);
    for (int64_t e = 0; e < s->count && !status; e++)
        *yes = *yes && gradient[s->input][s->at[e]] == s->analytic[s->set][e];
    return status;
}

/* ---- The function's slopes ---------------------------------------------------------------- */

/* u . (f(x + h) - f(x - h)) / 2h for a probe, and its possible rounding error. */
static double slope_of_probe(const gd_evidence *s, int set, double apart, double *noise)
{
    const gd_checker *c = s->c;
    double sum = 0, squares = 0;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        const double eps = gd_check_rounding(r->measured);
        const int64_t first = s->one_hot ? set - s->measured : 0;
        const int64_t end = s->one_hot ? first + 1 : r->count;
        if (!s->one_hot && !s->cotangent[set][o]) continue;
        for (int64_t i = first; i < end; i++) {
            const double u = s->one_hot ? 1 : s->cotangent[set][o][i];
            const double rounded = u * r->base[i] * eps;
            if (r->plus[i] == r->base[i] && r->minus[i] == r->base[i]) continue;
            sum += u * (r->plus[i] - r->minus[i]);
            squares += rounded * rounded;
            if (s->one_hot && sum == 0) sum = DBL_MIN; /* it depends */
        }
    }
    *noise = 2 * sqrt(squares) / apart;
    return sum / apart;
}

gd_status gd_check_probe_slopes(const gd_evidence *s, int input, int64_t element, double h,
                                double *slope, double *noise)
{
    gd_checker *c = s->c;
    const gd_move move = {.input = input, .element = element};
    gd_status status = gd_check_slopes(c, &move, h, c->slope);
    /* The steps as they were stored. */
    const double apart = 2 * h * c->input[input].scale * c->moved[element];
    for (int set = 0; set < s->measured && !status; set++)
        slope[set] = c->slope[s->first + set].central, noise[set] = c->slope[s->first + set].noise;
    for (int set = s->measured; set < s->sets && !status; set++)
        slope[set] = slope_of_probe(s, set, apart, &noise[set]);
    return status;
}

/* Slopes for the probes at one element, from two steps, and their error; infinite if they do not
 * agree with those of the check. */
static gd_status measure_with(gd_evidence *s, int64_t e, double h, double *error)
{
    double *coarse = s->slopes, *fine = coarse + s->sets, *noise = fine + s->sets;
    gd_status status = gd_check_probe_slopes(s, s->input, s->at[e], h, coarse, noise);
    if (!status) status = gd_check_probe_slopes(s, s->input, s->at[e], h / 4, fine, noise);
    *error = 0;
    for (int set = 0; set < s->sets && !status; set++) {
        const double apart = fine[set] - coarse[set], value = fine[set] + apart / 15;
        if (set >= s->measured) {
            s->numeric[set][e] = value;
            *error = fmax(*error, fabs(apart) / 3 + noise[set]);
        }
        if (!isfinite(value) ||
            (set < s->measured && !(fabs(value - s->numeric[set][e]) <= s->rtol * s->scale[set])))
            *error = INFINITY;
    }
    return status;
}

static double largest_of(const gd_evidence *s)
{
    double largest = 0;
    for (int set = s->measured; set < s->sets; set++)
        for (int64_t e = 0; e < s->count; e++)
            if (!s->skip[e] && isfinite(s->numeric[set][e]))
                largest = fmax(largest, fabs(s->numeric[set][e]));
    return largest;
}

/* Measures all elements; those whose slopes are not accurate again with shorter steps. */
static gd_status measure(gd_evidence *s)
{
    enum { TRIES = 6 };
    double h = s->c->options.step, *error = gd_check_numbers(s->c, s->count);
    if (!error) return GD_ERROR_MEMORY;
    for (int64_t e = 0; e < s->count; e++) error[e] = s->skip[e] ? 0 : INFINITY;
    for (int try = 0; try < TRIES && !s->sure; try++, h /= 16) {
        const double tolerance = s->rtol * largest_of(s);
        for (int64_t e = 0; e < s->count; e++) {
            if (error[e] <= tolerance) continue;
            gd_status status = measure_with(s, e, h, &error[e]);
            if (status) return status;
        }
        s->sure = true;
        const double most = s->rtol * largest_of(s);
        for (int64_t e = 0; e < s->count; e++) s->sure = s->sure && error[e] <= most;
    }
    return GD_OK;
}

/* ---- All ---------------------------------------------------------------------------------- */

/* The elements that are wrong with any cotangents. */
static void find_wrong(gd_evidence *s)
{
    for (int64_t e = 0; e < s->count; e++)
        for (int set = s->measured; set < s->sets && !s->skip[e]; set++)
            s->wrong[e] = s->wrong[e] || !(fabs(s->analytic[set][e] - s->numeric[set][e]) <=
                                           2 * s->rtol * s->scale[set]);
}

/* Errors of probes are relative to the largest slope of all, and a finding must explain nearly all
 * of the largest error. */
static void set_scales(gd_evidence *s)
{
    double largest = largest_of(s), gap = 0;
    for (int set = s->measured; set < s->sets; set++)
        for (int64_t e = 0; e < s->count; e++)
            if (!s->skip[e]) gap = fmax(gap, fabs(s->numeric[set][e] - s->analytic[set][e]));
    if (largest == 0) largest = s->scale[s->set];
    for (int set = s->measured; set < s->sets; set++) {
        s->scale[set] = largest;
        s->slack[set] = fmin(s->rtol * largest, gap / 50);
    }
}

gd_status gd_check_evidence(gd_evidence *s)
{
    gd_checker *c = s->c;
    bool sure = true;
    gd_status status = repeats(s, &sure);
    if (status || !sure) return status;
    s->one_hot = can_be_one_hot(s);
    const int probes = s->one_hot ? (int)c->output[0].count : RANDOM_PROBES;
    s->sets = s->measured + probes;
    s->used = gd_check_allocate(c, probes, sizeof *s->used);
    s->slopes = gd_check_numbers(c, 3 * (int64_t)s->sets);
    if (!s->used || !s->slopes) return GD_ERROR_MEMORY;
    for (int probe = 0; probe < probes && !s->one_hot; probe++)
        if (make_probe(s, probe)) return GD_ERROR_MEMORY;
    for (int set = s->measured; set < s->sets; set++) {
        s->analytic[set] = gd_check_numbers(c, s->count);
        s->numeric[set] = gd_check_numbers(c, s->count);
        if (!s->analytic[set] || !s->numeric[set]) return GD_ERROR_MEMORY;
    }
    status = ask_backwards(s);
    if (!status) status = measure(s);
    for (int set = s->measured; set < s->sets; set++)
        for (int64_t e = 0; e < s->count; e++) s->sure = s->sure && isfinite(s->analytic[set][e]);
    set_scales(s);
    find_wrong(s);
    return status;
}

/* The most sets that the evidence may have. */
int64_t gd_check_most_sets(const gd_checker *c)
{
    return c->sets + MOST_COLUMNS + RANDOM_PROBES;
}
