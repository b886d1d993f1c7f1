/* compare.c - one input: which elements are examined, and whether backward and numeric derivative
 * agree there, for every set of cotangents. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"

/* What a set of cotangents shows of an input. */
typedef struct gd_side {
    double *analytic;      /* [count of the input] */
    double *numeric;       /* [capacity] */
    char *state;           /* [capacity] */
    double largest, floor; /* numeric; and what errors are relative to at least */
    double rounding;       /* of a gradient of 0, once it is known: */
    bool shaken;
} gd_side;

/* The state of the comparison of one input. Arrays over elements have room for the sample and for
 * one element found along each direction. */
typedef struct gd_comparison {
    gd_checker *c;
    int input;
    gd_argument *argument;
    int64_t count, capacity;
    int64_t *at;
    gd_side *side;  /* [sets] */
    double typical; /* the median size of the sampled values that are not 0, over scale */
    int smooth;     /* how many elements are wrong, and not by a choice at ties */
    bool lost;      /* a direction disagrees, but no single element does */
} gd_comparison;

static double scale_of(const gd_comparison *m, int set)
{
    return fmax(m->side[set].largest, m->side[set].floor);
}

static double tolerance_of(const gd_comparison *m, int set)
{
    return m->c->options.rtol * scale_of(m, set);
}

static double gap_of(const gd_comparison *m, int set, int64_t e)
{
    const double analytic = m->side[set].analytic[m->at[e]], numeric = m->side[set].numeric[e];
    if (analytic == numeric) return 0;
    if (gd_check_overflows(m->argument->spec.dtype, analytic, numeric)) return 0;
    return fabs(analytic - numeric);
}

static double error_of(const gd_comparison *m, int set, int64_t e)
{
    double gap = gap_of(m, set, e);
    if (gap == 0) return 0;
    gap /= scale_of(m, set);
    return isnan(gap) ? INFINITY : gap;
}

/* ---- Which elements ----------------------------------------------------------------------- */

static void choose(gd_comparison *m)
{
    const gd_gradcheck_options *options = &m->c->options;
    int64_t n = m->argument->count, k = n;
    if (options->only_element) k = 1;
    if (k > options->max_elements) k = options->max_elements;
    m->capacity = k + (int64_t)options->directions * m->c->sets;
    m->at = gd_check_allocate(m->c, m->capacity, sizeof *m->at);
    if (!m->at) return;
    m->count = k;
    for (int64_t e = 0; e < k; e++) { /* one from each of k stretches; the first and the last */
        int64_t begin = (int64_t)((double)n * (double)e / (double)k);
        int64_t end = (int64_t)((double)n * (double)(e + 1) / (double)k);
        m->at[e] = begin + gd_check_below(end - begin, options->seed, GD_STREAM_SAMPLE, e);
        if (e == 0 && k > 1) m->at[e] = 0;
        if (e == k - 1) m->at[e] = n - 1;
    }
    if (options->only_element)
        m->at[0] = options->only_element == GD_ZERO ? 0 : options->only_element;
}

static void prepare(gd_comparison *m)
{
    gd_checker *c = m->c;
    choose(m);
    m->side = gd_check_allocate(c, c->sets, sizeof *m->side);
    for (int set = 0; set < c->sets && m->side; set++)
        m->side[set] = (gd_side){.analytic = c->set[set].gradient + m->argument->first,
                                 .numeric = gd_check_numbers(c, m->capacity),
                                 .state = gd_check_allocate(c, m->capacity, 1),
                                 .floor = c->options.atol / c->options.rtol * c->set[set].unit /
                                          m->argument->scale};
}

/* ---- Single elements ---------------------------------------------------------------------- */

/* The size of an element much smaller than the spread of the values, relative to it; else 0. The
 * usual steps may be too long for such an element: they cross 0, or pass over all that the function
 * does there. Beside values of 1e6, a 0 is as likely to be one of 1. */
static double own_size(const gd_comparison *m, int64_t at)
{
    double own = fabs(m->argument->value[at]) / m->argument->scale;
    if (own == 0) own = m->typical;
    return own < 1.0 / 16 ? own : 0;
}

static void find_typical(gd_comparison *m)
{
    double *size = gd_check_numbers(m->c, m->count);
    int64_t n = 0;
    for (int64_t e = 0; e < m->count && size; e++) {
        const double value = fabs(m->argument->value[m->at[e]]);
        if (value > 0 && isfinite(value)) size[n++] = value / m->argument->scale;
    }
    if (n) gd_check_sort(size, n);
    m->typical = n ? size[n / 2] : 0;
}

/* The slopes of an element, for all sets. */
static void measure_element(gd_comparison *m, int64_t e)
{
    gd_checker *c = m->c;
    const gd_move move = {.input = m->input, .element = m->at[e]};
    const double own = own_size(m, m->at[e]);
    bool finite = true;
    gd_check_slopes(c, &move, c->options.step);
    for (int set = 0; set < c->sets; set++) finite = finite && isfinite(c->set[set].slope.central);
    if (!finite && own > 0) gd_check_slopes(c, &move, c->options.step * own);
    for (int set = 0; set < c->sets; set++) m->side[set].numeric[e] = c->set[set].slope.central;
}

static void measure(gd_comparison *m)
{
    for (int64_t e = 0; e < m->count && !gd_check_failed(m->c); e++) measure_element(m, e);
    for (int set = 0; set < m->c->sets; set++)
        m->side[set].largest = gd_check_largest(m->side[set].numeric, m->count);
}

/* How far rounding may move a gradient that is made of terms which cancel. */
static double rounding_of(gd_comparison *m, int set)
{
    gd_checker *c = m->c;
    gd_side *s = &m->side[set];
    if (s->shaken) return s->rounding;
    const double by = 8 * gd_check_accuracy[c->dtype].rounding;
    const double *moved = gd_check_shake(c, c->set[set].cotangent, by, false);
    s->shaken = true;
    if (moved && isfinite(moved[m->input])) s->rounding = 8 * moved[m->input];
    return s->rounding;
}

/* If the gradient is 0, what backward gives may be its rounding: raises the floor above that. */
static void raise_floor(gd_comparison *m, int set)
{
    gd_side *s = &m->side[set];
    if (s->largest > s->floor) return;
    s->floor = fmax(s->floor, rounding_of(m, set) / m->c->options.rtol);
}

/* Whether gradient and function are the rounding of terms that cancel. As the cotangents are of
 * size 1, it may be as much as the rounding of the input's values, if the gradient does not
 * show more. */
static bool cancels(gd_comparison *m, int set, const gd_ladder *ladder, double analytic)
{
    const double least = 8 * gd_check_accuracy[m->c->dtype].rounding;
    if (!(fabs(analytic) <= 1e3 * least)) return false;
    const double rounding = fmax(rounding_of(m, set), least);
    return fabs(analytic) <= rounding && gd_check_flat(ladder, rounding);
}

/* A verdict that rounding may have caused is left to more steps. */
static gd_state confirm(gd_comparison *m, const gd_move *move, int set, const gd_ladder *ladder,
                        double analytic, gd_state state, double *numeric)
{
    const double tolerance = tolerance_of(m, set);
    const gd_estimate estimate = gd_check_estimate(ladder, tolerance, m->c->f.kinks);
    const bool near = fabs(*numeric - analytic) <= 8 * tolerance + 4 * estimate.error;
    double again;
    if (state == GD_STATE_RIGHT || state == GD_STATE_KINK || !near ||
        !gd_check_confirms(m->c, move, set, ladder, analytic, tolerance, &again))
        return state;
    *numeric = again;
    return GD_STATE_RIGHT;
}

/* Judges an element by a ladder. If the element is much smaller than the spread of the values, and
 * the ladder does not agree with the gradient, more of them lead down to steps for its own size,
 * and the finest accurate one decides. */
static gd_state climb(gd_comparison *m, int set, int64_t at, gd_ladder *ladder, double *numeric)
{
    gd_checker *c = m->c;
    const double analytic = m->side[set].analytic[at], own = own_size(m, at);
    const gd_move move = {.input = m->input, .element = at};
    double shorter = 1;
    gd_ladder next;
    for (gd_state state = GD_STATE_RIGHT;;) {
        gd_check_ladder(c, &move, set, shorter, &next);
        double tolerance = tolerance_of(m, set), value;
        const gd_estimate estimate = gd_check_estimate(&next, tolerance, c->f.kinks);
        /* The largest gradient may be this one. */
        tolerance = fmax(tolerance, c->options.rtol * fabs(estimate.value));
        if (shorter == 1 || estimate.error <= tolerance) {
            state = gd_check_judge(&next, analytic, tolerance, c->f.kinks, &value);
            *ladder = next;
            *numeric = value;
        }
        if (gd_check_failed(c)) return GD_STATE_RIGHT;
        if (state != GD_STATE_RIGHT && cancels(m, set, &next, analytic)) {
            *numeric = 0;
            return GD_STATE_RIGHT;
        }
        if (c->higher && state != GD_STATE_RIGHT && gd_check_jumps(&next)) {
            /* At a kink of the function its gradient jumps; what is right there is zero, or the
             * slope of one side, which counts as a kink. */
            const bool zero = fabs(analytic) <= tolerance;
            *numeric = zero ? 0 : NAN;
            if (state == GD_STATE_KINK) return state;
            return zero ? GD_STATE_RIGHT : GD_STATE_UNSTABLE;
        }
        if (state == GD_STATE_RIGHT || !isfinite(analytic) || !(shorter > own) || own == 0)
            return confirm(m, &move, set, ladder, analytic, state, numeric);
        shorter = fmax(shorter / 256, own);
    }
}

static void judge(gd_comparison *m, int set, int64_t e)
{
    const double tolerance = tolerance_of(m, set);
    gd_side *s = &m->side[set];
    s->state[e] = GD_STATE_RIGHT;
    if (gap_of(m, set, e) <= tolerance) return;
    gd_ladder ladder;
    double numeric;
    gd_state state = climb(m, set, m->at[e], &ladder, &numeric);
    if (gd_check_failed(m->c)) return;
    /* The ladder's slope is accurate enough for the verdict; if the usual step agrees with it,
     * that slope has more digits. */
    if (!(fabs(s->numeric[e] - numeric) <= tolerance / 4)) s->numeric[e] = numeric;
    if (state == GD_STATE_WRONG) {
        raise_floor(m, set);
        if (gap_of(m, set, e) <= tolerance_of(m, set)) state = GD_STATE_RIGHT;
    }
    /* Where some elements are wrong, and at no ties, it is not asked of all. */
    const bool open = state == GD_STATE_UNSTABLE && m->c->higher && gd_check_jumps(&ladder);
    if ((state == GD_STATE_WRONG || open) && m->c->f.kinks && m->smooth < 4) {
        const gd_move move = {.input = m->input, .element = m->at[e]};
        const gd_state choice = gd_check_choice(m->c, &move, set, &ladder, tolerance_of(m, set));
        if (choice != GD_STATE_WRONG) state = choice;
        m->smooth += choice == GD_STATE_WRONG;
    }
    s->state[e] = (char)state;
}

/* The tolerance depends on the largest gradient, and that on slopes which a ladder corrects: judges
 * until it stays. */
static void judge_all(gd_comparison *m)
{
    enum { PASSES = 3 };
    bool stays = false;
    for (int pass = 0; pass < PASSES && !stays; pass++) {
        stays = true;
        for (int set = 0; set < m->c->sets; set++) {
            for (int64_t e = 0; e < m->count && !gd_check_failed(m->c); e++) judge(m, set, e);
            const double before = scale_of(m, set);
            m->side[set].largest = gd_check_largest(m->side[set].numeric, m->count);
            const double now = scale_of(m, set);
            stays = stays && now <= 2 * before && before <= 2 * now;
        }
    }
}

/* ---- Along directions --------------------------------------------------------------------- */

/* A random direction. Values of many sizes are each moved by their own. */
static void make_direction(const gd_comparison *m, int d, double *direction)
{
    const gd_argument *a = m->argument;
    gd_check_signs(direction, a->count, m->c->options.seed, GD_STREAM_DIRECTION + (uint64_t)d);
    for (int64_t i = 0; i < a->count && m->typical < 1.0 / 16; i++)
        direction[i] *= fmin(1, fmax(fabs(a->value[i]) / a->scale, m->typical));
}

/* Whether gradient and function disagree along a direction: at each of three steps, and with a
 * stable numeric derivative. */
static bool disagrees(gd_comparison *m, int set, const double *direction)
{
    gd_checker *c = m->c;
    const gd_move move = {.input = m->input, .element = -1, .direction = direction};
    const gd_slope *slope = &c->set[set].slope;
    double h = c->options.step, previous = NAN, length = 0;
    for (int64_t i = 0; i < m->argument->count; i++) length += direction[i] * direction[i];
    for (int rung = 0; rung < 3; rung++, h /= 4) {
        gd_check_slopes(c, &move, h);
        double analytic = 0;
        for (int64_t i = 0; i < m->argument->count; i++)
            analytic += m->side[set].analytic[i] * c->moved[i];
        double gap = fabs(analytic - slope->central);
        if (gap <= tolerance_of(m, set) * sqrt(length) + 4 * slope->noise) return false;
        if (fabs(slope->central - previous) > gap / 2 || gd_check_failed(c)) return false;
        previous = slope->central;
    }
    return true;
}

/* Bisects the direction, following the half that disagrees, down to one element; -1 if neither half
 * disagrees. */
static int64_t search(gd_comparison *m, int set, const double *direction, double *half)
{
    int64_t begin = 0, end = m->argument->count;
    while (end - begin > 1) {
        int64_t middle = begin + (end - begin) / 2;
        bool here = false;
        for (int side = 0; side < 2 && !here; side++) {
            int64_t from = side ? middle : begin, to = side ? end : middle;
            memset(half, 0, (size_t)m->argument->count * sizeof *half);
            memcpy(half + from, direction + from, (size_t)(to - from) * sizeof *half);
            here = disagrees(m, set, half);
            if (here) begin = from, end = to;
        }
        if (!here) return -1;
    }
    return begin;
}

static bool sampled(const gd_comparison *m, int64_t at)
{
    for (int64_t e = 0; e < m->count; e++)
        if (m->at[e] == at) return true;
    return false;
}

/* Adds an element to the comparison. Whether it is right for a set. */
static bool add_element(gd_comparison *m, int64_t at, int of)
{
    const int64_t e = m->count++;
    m->at[e] = at;
    measure_element(m, e);
    for (int set = 0; set < m->c->sets; set++) judge(m, set, e);
    return m->side[of].state[e] == GD_STATE_RIGHT;
}

static void go_directions(gd_comparison *m, gd_gradcheck_input *out)
{
    gd_checker *c = m->c;
    const int64_t n = m->argument->count;
    double *direction = gd_check_numbers(c, n), *half = gd_check_numbers(c, n);
    if (!direction || !half) return;
    for (int d = 0; d < c->options.directions; d++, out->directions++) {
        make_direction(m, d, direction);
        for (int set = 0; set < c->sets && !gd_check_failed(c); set++) {
            if (!disagrees(m, set, direction)) continue;
            const int64_t found = search(m, set, direction, half);
            const bool lost = found < 0 || (!sampled(m, found) && add_element(m, found, set));
            /* Several elements at the same kink may each agree alone. */
            m->lost = m->lost || (lost && !c->f.kinks);
        }
    }
}

/* ---- Results ------------------------------------------------------------------------------ */

static void count_states(const gd_comparison *m, gd_gradcheck_input *out)
{
    for (int64_t e = 0; e < m->count; e++) {
        bool seen[4] = {false};
        for (int set = 0; set < m->c->sets; set++) seen[(int)m->side[set].state[e]] = true;
        if (seen[GD_STATE_WRONG])
            out->wrong++;
        else if (seen[GD_STATE_UNSTABLE])
            out->inconclusive++;
        else if (seen[GD_STATE_KINK])
            out->kinks++;
        if (seen[GD_STATE_WRONG] || !(seen[GD_STATE_UNSTABLE] || seen[GD_STATE_KINK]))
            out->compared++;
    }
}

/* The worst element of the most serious state: wrong, else unstable, else right. Returns its
 * set. */
static int find_worst(const gd_comparison *m, gd_gradcheck_input *out, gd_state *kind)
{
    static const int gravity[] = {
        [GD_STATE_RIGHT] = 1, [GD_STATE_WRONG] = 3, [GD_STATE_UNSTABLE] = 2};
    int worst_set = 0, gravest = 0;
    double largest = -1;
    for (int set = 0; set < m->c->sets; set++) {
        const gd_side *s = &m->side[set];
        for (int64_t e = 0; e < m->count; e++) {
            int weight = gravity[(int)s->state[e]];
            double error = error_of(m, set, e);
            if (s->state[e] == GD_STATE_KINK || weight < gravest) continue;
            if (weight == gravest && error <= largest) continue;
            gravest = weight;
            largest = error;
            worst_set = set;
            *kind = (gd_state)s->state[e];
            out->worst = m->at[e];
            out->analytic = s->analytic[m->at[e]];
            out->numeric = s->numeric[e];
            out->largest_error = error;
        }
        out->largest_gradient = fmax(out->largest_gradient, s->largest);
    }
    return worst_set;
}

/* Notes the numeric derivative of the worst element at several steps. */
static void sweep(gd_comparison *m, int set, gd_gradcheck_input *out)
{
    gd_ladder ladder;
    double numeric;
    const gd_state state = climb(m, set, out->worst, &ladder, &numeric);
    if (gd_check_failed(m->c)) return;
    out->sweeps = GD_GRADCHECK_SWEEP;
    for (int i = 0; i < out->sweeps; i++) {
        out->sweep_step[i] = ladder.step[i];
        out->sweep_numeric[i] = ladder.slope[i].central;
    }
    const double tolerance = tolerance_of(m, set);
    const gd_estimate estimate = gd_check_estimate(&ladder, tolerance, m->c->f.kinks);
    out->sweep_stable = state == GD_STATE_WRONG && estimate.error <= tolerance &&
                        !gd_check_contradicted(&ladder, &estimate, out->analytic, tolerance);
}

/* Whether, apart from the elements that were found to be wrong, a direction disagrees. */
static bool look_for_others(gd_comparison *m, int set)
{
    gd_checker *c = m->c;
    gd_side *s = &m->side[set];
    double *kept = gd_check_numbers(c, m->count),
           *direction = gd_check_numbers(c, m->argument->count);
    bool others = c->options.directions == 0;
    if (!kept || !direction) return false;
    for (int64_t e = 0; e < m->count; e++) {
        kept[e] = s->analytic[m->at[e]];
        if (s->state[e] == GD_STATE_WRONG) s->analytic[m->at[e]] = s->numeric[e];
    }
    for (int d = 0; d < c->options.directions && !others; d++) {
        make_direction(m, d, direction);
        others = disagrees(m, set, direction);
    }
    for (int64_t e = 0; e < m->count; e++) s->analytic[m->at[e]] = kept[e];
    return others;
}

/* The evidence of the sets of all outputs, or of that of one output. */
static void gather_evidence(gd_comparison *m, int worst, gd_evidence *s)
{
    gd_checker *c = m->c;
    const bool alone = c->set[worst].alone >= 0;
    *s = (gd_evidence){.c = c,
                       .input = m->input,
                       .argument = m->argument,
                       .count = m->count,
                       .at = m->at,
                       .first = alone ? worst : 0,
                       .sets = alone ? 1 : c->options.cotangents,
                       .set = alone ? 0 : worst,
                       .of = gd_check_allocate(c, c->sets, sizeof *s->of),
                       .wrong = gd_check_allocate(c, 2 * m->count, sizeof *s->wrong),
                       .rtol = c->options.rtol};
    s->measured = s->sets;
    s->skip = s->wrong ? s->wrong + m->count : NULL;
    for (int k = 0; k < s->measured && !gd_check_failed(c); k++) {
        const gd_side *side = &m->side[s->first + k];
        double largest = 0; /* a finding must also explain nearly all of the error */
        s->of[k] = (gd_columns){.cotangent = c->set[s->first + k].cotangent,
                                .numeric = side->numeric,
                                .analytic = gd_check_numbers(c, m->count),
                                .scale = scale_of(m, s->first + k)};
        for (int64_t e = 0; e < m->count && s->of[k].analytic; e++) {
            s->wrong[e] = s->wrong[e] || side->state[e] == GD_STATE_WRONG;
            s->skip[e] = s->skip[e] || side->state[e] == GD_STATE_KINK;
            s->unknown =
                s->unknown || side->state[e] == GD_STATE_UNSTABLE || !isfinite(side->numeric[e]);
            s->of[k].analytic[e] = side->analytic[m->at[e]];
            largest = fmax(largest, gap_of(m, s->first + k, e));
        }
        s->of[k].slack = fmin(tolerance_of(m, s->first + k), largest / 50);
    }
    for (int64_t e = 0; e < m->count && s->wrong; e++) s->wrong[e] = s->wrong[e] && !s->skip[e];
}

static void diagnose(gd_comparison *m, int set, gd_gradcheck_input *out)
{
    const int alone = m->c->set[set].alone;
    gd_evidence evidence;
    gather_evidence(m, set, &evidence);
    evidence.out = out;
    for (int k = 0; k < evidence.measured && !evidence.others; k++)
        if (out->wrong <= evidence.measured && m->count < m->argument->count)
            evidence.others = look_for_others(m, evidence.first + k);
    if (!gd_check_failed(m->c)) gd_check_diagnose(&evidence);
    if (alone >= 0 && out->finding[0])
        gd_check_say(out->finding, sizeof out->finding, ", with a gradient for output %d alone",
                     alone);
    sweep(m, set, out);
}

void gd_check_compare(gd_checker *c, gd_gradcheck_input *out)
{
    gd_comparison m = {.c = c, .input = out->index, .argument = &c->input[out->index]};
    gd_state kind = GD_STATE_RIGHT;
    if (!gd_check_failed(c)) prepare(&m);
    if (gd_check_failed(c)) return;
    find_typical(&m);
    measure(&m);
    judge_all(&m);
    /* In float32, with its long steps, a direction nearly always crosses kinks. */
    bool coarse_kinks = c->f.kinks && c->options.step > 1e-4;
    if (m.count < m.argument->count && !c->options.only_element && !coarse_kinks)
        go_directions(&m, out);
    if (gd_check_failed(c)) return;
    const int set = find_worst(&m, out, &kind);
    count_states(&m, out);
    if (m.lost && !out->wrong) {
        out->inconclusive++;
        snprintf(out->finding, sizeof out->finding,
                 "a random direction disagrees, but no single element was found that does");
    }
    if (kind == GD_STATE_WRONG) diagnose(&m, set, out);
    if (kind == GD_STATE_UNSTABLE) sweep(&m, set, out);
}
