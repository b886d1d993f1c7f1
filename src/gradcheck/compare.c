/* compare.c - one input: which elements are examined, and whether backward and numeric derivative
 * agree there, for every set of cotangents. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"

/* The state of the comparison of one input. Arrays over elements have room for the sample and for
 * one element found along each direction. */
typedef struct gd_comparison {
    gd_checker *c;
    int input;
    gd_argument *argument;
    int64_t count, capacity;
    int64_t *at;
    double **numeric;        /* [sets][capacity] */
    char **state;            /* [sets][capacity] */
    double *largest, *floor; /* [sets] */
    bool *shaken;            /* [sets] whether the floor is above the rounding of a gradient of 0 */
    double typical;          /* the median size of the sampled values that are not 0, over scale */
    int smooth;              /* how many elements are wrong, and not by a choice at ties */
    bool lost;               /* a direction disagrees, but no single element does */
} gd_comparison;

static double tolerance_of(const gd_comparison *m, int set)
{
    return m->c->options.rtol * fmax(m->largest[set], m->floor[set]);
}

static double gap_of(const gd_comparison *m, int set, int64_t e)
{
    double analytic = m->c->analytic[set][m->input][m->at[e]], numeric = m->numeric[set][e];
    if (analytic == numeric) return 0;
    if (gd_check_overflows(m->argument->dtype, analytic, numeric)) return 0;
    return fabs(analytic - numeric);
}

static double error_of(const gd_comparison *m, int set, int64_t e)
{
    double gap = gap_of(m, set, e);
    if (gap == 0) return 0;
    gap /= fmax(m->largest[set], m->floor[set]);
    return isnan(gap) ? INFINITY : gap;
}

/* ---- Which elements ----------------------------------------------------------------------- */

static gd_status choose(gd_comparison *m)
{
    const gd_gradcheck_options *options = &m->c->options;
    int64_t n = m->argument->count, k = n;
    if (options->only_element) k = 1;
    if (k > options->max_elements) k = options->max_elements;
    m->capacity = k + (int64_t)options->directions * m->c->sets;
    m->at = gd_check_allocate(m->c, m->capacity, sizeof *m->at);
    if (!m->at) return GD_ERROR_MEMORY;
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
    return GD_OK;
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

static gd_status find_typical(gd_comparison *m)
{
    double *size = gd_check_numbers(m->c, m->count);
    int64_t n = 0;
    if (!size) return GD_ERROR_MEMORY;
    for (int64_t e = 0; e < m->count; e++) {
        const double value = fabs(m->argument->value[m->at[e]]);
        if (value > 0 && isfinite(value)) size[n++] = value / m->argument->scale;
    }
    gd_check_sort(size, n);
    m->typical = n ? size[n / 2] : 0;
    return GD_OK;
}

static double largest_of(const gd_comparison *m, int set)
{
    double largest = 0;
    for (int64_t e = 0; e < m->count; e++)
        if (isfinite(m->numeric[set][e])) largest = fmax(largest, fabs(m->numeric[set][e]));
    return largest;
}

static gd_status measure(gd_comparison *m)
{
    gd_checker *c = m->c;
    for (int64_t e = 0; e < m->count; e++) {
        gd_move move = {.input = m->input, .element = m->at[e]};
        const double own = own_size(m, m->at[e]);
        bool finite = true;
        gd_status status = gd_check_slopes(c, &move, c->options.step, c->slope);
        for (int set = 0; set < c->sets; set++) finite = finite && isfinite(c->slope[set].central);
        if (!status && !finite && own > 0)
            status = gd_check_slopes(c, &move, c->options.step * own, c->slope);
        if (status) return status;
        for (int set = 0; set < c->sets; set++) m->numeric[set][e] = c->slope[set].central;
    }
    for (int set = 0; set < c->sets; set++) {
        m->floor[set] = c->options.atol / c->options.rtol * c->unit[set] / m->argument->scale;
        m->largest[set] = largest_of(m, set);
    }
    return GD_OK;
}

/* Judges an element by a ladder. If the element is much smaller than the spread of the values, and
 * the ladder does not agree with the gradient, more of them lead down to steps for its own size, and
 * the finest accurate one decides. */
static gd_status climb(gd_comparison *m, int set, int64_t at, gd_ladder *ladder, gd_state *state,
                       double *numeric)
{
    gd_checker *c = m->c;
    const double analytic = c->analytic[set][m->input][at], own = own_size(m, at);
    const gd_move move = {.input = m->input, .element = at};
    double shorter = 1;
    for (;;) {
        gd_ladder next;
        gd_status status = gd_check_ladder(c, &move, set, shorter, &next);
        if (status) return status;
        double tolerance = tolerance_of(m, set), value;
        const gd_estimate estimate = gd_check_estimate(&next, tolerance, c->kinks);
        /* The largest gradient may be this one. */
        tolerance = fmax(tolerance, c->options.rtol * fabs(estimate.value));
        if (shorter == 1 || estimate.error <= tolerance) {
            *state = gd_check_judge(&next, analytic, tolerance, c->kinks, &value);
            *ladder = next;
            *numeric = value;
        }
        if (c->higher && *state != GD_STATE_RIGHT && gd_check_jumps(&next)) {
            /* At a kink of the function its gradient jumps; what is right there is zero, or the slope
             * of one side, which counts as a kink. */
            const bool zero = fabs(analytic) <= tolerance;
            if (*state != GD_STATE_KINK) *state = zero ? GD_STATE_RIGHT : GD_STATE_UNSTABLE;
            *numeric = zero ? 0 : NAN;
            return GD_OK;
        }
        if (*state == GD_STATE_RIGHT || !isfinite(analytic) || !(shorter > own) || own == 0)
            return GD_OK;
        shorter = fmax(shorter / 256, own);
    }
}

/* If the gradient is 0, what backward gives may be its rounding: raises the floor above that. */
static gd_status raise_floor(gd_comparison *m, int set)
{
    gd_checker *c = m->c;
    if (m->shaken[set] || m->largest[set] > m->floor[set]) return GD_OK;
    const double by = 8 * gd_check_rounding(c->dtype);
    const double *moved = gd_check_shake(c, c->cotangent[set], by);
    if (!moved) return gd_error_status(c->ctx);
    m->shaken[set] = true;
    if (isfinite(moved[m->input]))
        m->floor[set] = fmax(m->floor[set], 8 * moved[m->input] / c->options.rtol);
    return GD_OK;
}

static gd_status judge(gd_comparison *m, int set, int64_t e)
{
    double tolerance = tolerance_of(m, set), numeric;
    m->state[set][e] = GD_STATE_RIGHT;
    if (gap_of(m, set, e) <= tolerance) return GD_OK;
    gd_ladder ladder;
    gd_state state;
    gd_status status = climb(m, set, m->at[e], &ladder, &state, &numeric);
    if (status) return status;
    /* The ladder's slope is accurate enough for the verdict; if the usual step agrees with it,
     * that slope has more digits. */
    if (!(fabs(m->numeric[set][e] - numeric) <= tolerance / 4)) m->numeric[set][e] = numeric;
    if (state == GD_STATE_WRONG) status = raise_floor(m, set);
    if (state == GD_STATE_WRONG && gap_of(m, set, e) <= tolerance_of(m, set))
        state = GD_STATE_RIGHT;
    /* Where some elements are wrong, and at no ties, it is not asked of all. */
    if (state == GD_STATE_WRONG && !status && m->c->kinks && m->smooth < 4) {
        bool is = false;
        tolerance = tolerance_of(m, set);
        status = gd_check_choice(m->c, m->input, m->at[e], set, &ladder, tolerance, &is);
        if (is) state = GD_STATE_KINK;
        m->smooth += !is;
    }
    m->state[set][e] = (char)state;
    return status;
}

/* The tolerance depends on the largest gradient, and that on slopes which a ladder corrects: judges
 * until it stays. */
static gd_status judge_all(gd_comparison *m)
{
    enum { PASSES = 3 };
    bool stays = false;
    for (int pass = 0; pass < PASSES && !stays; pass++) {
        stays = true;
        for (int set = 0; set < m->c->sets; set++) {
            for (int64_t e = 0; e < m->count; e++) {
                gd_status status = judge(m, set, e);
                if (status) return status;
            }
            const double before = fmax(m->largest[set], m->floor[set]);
            m->largest[set] = largest_of(m, set);
            const double now = fmax(m->largest[set], m->floor[set]);
            stays = stays && now <= 2 * before && before <= 2 * now;
        }
    }
    return GD_OK;
}

/* ---- Along directions --------------------------------------------------------------------- */

/* Whether gradient and function disagree along a direction: at each of three steps, and with a
 * stable numeric derivative. */
static gd_status disagrees(gd_comparison *m, int set, const double *direction, bool *answer)
{
    gd_checker *c = m->c;
    const double *gradient = c->analytic[set][m->input];
    gd_move move = {.input = m->input, .element = -1, .direction = direction};
    double h = c->options.step, previous = NAN, length = 0;
    for (int64_t i = 0; i < m->argument->count; i++) length += direction[i] * direction[i];
    *answer = false;
    for (int rung = 0; rung < 3; rung++, h /= 4) {
        gd_status status = gd_check_slopes(c, &move, h, c->slope);
        if (status) return status;
        double analytic = 0, numeric = c->slope[set].central;
        for (int64_t i = 0; i < m->argument->count; i++) analytic += gradient[i] * c->moved[i];
        double gap = fabs(analytic - numeric);
        if (gap <= tolerance_of(m, set) * sqrt(length) + 4 * c->slope[set].noise) return GD_OK;
        if (fabs(numeric - previous) > gap / 2) return GD_OK;
        previous = numeric;
    }
    *answer = true;
    return GD_OK;
}

/* Bisects the direction, following the half that disagrees, down to one element; -1 if neither half
 * disagrees. */
static gd_status search(gd_comparison *m, int set, const double *direction, double *half,
                        int64_t *found)
{
    int64_t begin = 0, end = m->argument->count;
    *found = -1;
    while (end - begin > 1) {
        int64_t middle = begin + (end - begin) / 2;
        bool here = false;
        for (int side = 0; side < 2 && !here; side++) {
            int64_t from = side ? middle : begin, to = side ? end : middle;
            memset(half, 0, (size_t)m->argument->count * sizeof *half);
            memcpy(half + from, direction + from, (size_t)(to - from) * sizeof *half);
            gd_status status = disagrees(m, set, half, &here);
            if (status) return status;
            if (here) begin = from, end = to;
        }
        if (!here) return GD_OK;
    }
    *found = begin;
    return GD_OK;
}

/* Of values of many sizes each is moved by its own. */
static void shorten(const gd_comparison *m, double *direction)
{
    for (int64_t i = 0; i < m->argument->count; i++) {
        const double own = fabs(m->argument->value[i]) / m->argument->scale;
        direction[i] *= fmin(1, fmax(own, m->typical));
    }
}

static bool sampled(const gd_comparison *m, int64_t at)
{
    for (int64_t e = 0; e < m->count; e++)
        if (m->at[e] == at) return true;
    return false;
}

/* Adds an element to the comparison. */
static gd_status add_element(gd_comparison *m, int64_t at)
{
    gd_checker *c = m->c;
    int64_t e = m->count;
    gd_move move = {.input = m->input, .element = at};
    gd_status status = gd_check_slopes(c, &move, c->options.step, c->slope);
    m->at[e] = at;
    m->count++;
    for (int set = 0; set < c->sets && !status; set++) {
        m->numeric[set][e] = c->slope[set].central;
    }
    for (int set = 0; set < c->sets && !status; set++) status = judge(m, set, e);
    return status;
}

static gd_status go_directions(gd_comparison *m, gd_gradcheck_input *out)
{
    gd_checker *c = m->c;
    int64_t n = m->argument->count;
    double *direction = gd_check_numbers(c, n), *half = gd_check_numbers(c, n);
    if (!direction || !half) return GD_ERROR_MEMORY;
    for (int d = 0; d < c->options.directions; d++, out->directions++) {
        gd_check_signs(direction, n, c->options.seed, GD_STREAM_DIRECTION + (uint64_t)d);
        if (m->typical < 1.0 / 16) shorten(m, direction);
        for (int set = 0; set < c->sets; set++) {
            bool bad = false;
            int64_t found = -1;
            gd_status status = disagrees(m, set, direction, &bad);
            if (!status && bad) status = search(m, set, direction, half, &found);
            if (status) return status;
            /* Several elements at the same kink may each agree alone. */
            if (bad && found < 0 && !c->kinks) m->lost = true;
            if (found < 0 || sampled(m, found)) continue;
            status = add_element(m, found);
            if (status) return status;
            if (m->state[set][m->count - 1] == GD_STATE_RIGHT && !c->kinks) m->lost = true;
        }
    }
    return GD_OK;
}

/* ---- Results ------------------------------------------------------------------------------ */

static void count_states(const gd_comparison *m, gd_gradcheck_input *out)
{
    for (int64_t e = 0; e < m->count; e++) {
        bool seen[4] = {false};
        for (int set = 0; set < m->c->sets; set++) seen[(int)m->state[set][e]] = true;
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
        for (int64_t e = 0; e < m->count; e++) {
            int weight = gravity[(int)m->state[set][e]];
            double error = error_of(m, set, e);
            if (m->state[set][e] == GD_STATE_KINK || weight < gravest) continue;
            if (weight == gravest && error <= largest) continue;
            gravest = weight;
            largest = error;
            worst_set = set;
            *kind = (gd_state)m->state[set][e];
            out->worst = m->at[e];
            out->analytic = m->c->analytic[set][m->input][m->at[e]];
            out->numeric = m->numeric[set][e];
            out->largest_error = error;
        }
        out->largest_gradient = fmax(out->largest_gradient, m->largest[set]);
    }
    return worst_set;
}

/* Notes the numeric derivative of the worst element at several steps. */
static gd_status sweep(gd_comparison *m, int set, gd_gradcheck_input *out)
{
    gd_ladder ladder;
    gd_state state;
    double numeric;
    gd_status status = climb(m, set, out->worst, &ladder, &state, &numeric);
    if (status) return status;
    out->sweeps = GD_GRADCHECK_SWEEP;
    for (int i = 0; i < out->sweeps; i++) {
        out->sweep_step[i] = ladder.step[i];
        out->sweep_numeric[i] = ladder.slope[i].central;
    }
    const double tolerance = tolerance_of(m, set);
    const gd_estimate estimate = gd_check_estimate(&ladder, tolerance, m->c->kinks);
    out->sweep_stable = state == GD_STATE_WRONG && estimate.error <= tolerance &&
                        !gd_check_contradicted(&ladder, &estimate, out->analytic, tolerance);
    return GD_OK;
}

/* The tolerance of the check; but a finding must also explain nearly all of the error. */
static double slack_of(const gd_comparison *m, int set)
{
    double largest = 0;
    for (int64_t e = 0; e < m->count; e++) largest = fmax(largest, gap_of(m, set, e));
    return fmin(tolerance_of(m, set), largest / 50);
}

/* Whether, apart from the elements that were found to be wrong, a direction disagrees. */
static gd_status look_for_others(gd_comparison *m, int set, bool *others)
{
    gd_checker *c = m->c;
    const int64_t n = m->argument->count;
    double *gradient = c->analytic[set][m->input], *kept = gd_check_numbers(c, m->count);
    double *direction = gd_check_numbers(c, n);
    gd_status status = GD_OK;
    if (!kept || !direction) return GD_ERROR_MEMORY;
    for (int64_t e = 0; e < m->count; e++) {
        kept[e] = gradient[m->at[e]];
        if (m->state[set][e] == GD_STATE_WRONG) gradient[m->at[e]] = m->numeric[set][e];
    }
    *others = c->options.directions == 0;
    for (int d = 0; d < c->options.directions && !*others && !status; d++) {
        gd_check_signs(direction, n, c->options.seed, GD_STREAM_DIRECTION + (uint64_t)d);
        if (m->typical < 1.0 / 16) shorten(m, direction);
        status = disagrees(m, set, direction, others);
    }
    for (int64_t e = 0; e < m->count; e++) gradient[m->at[e]] = kept[e];
    return status;
}

/* What is known of an element with the sets of cotangents. */
static void note_states(const gd_comparison *m, gd_evidence *s, int64_t e)
{
    for (int k = 0; k < s->measured; k++) {
        const char state = m->state[s->first + k][e];
        s->wrong[e] = s->wrong[e] || state == GD_STATE_WRONG;
        s->skip[e] = s->skip[e] || state == GD_STATE_KINK;
        s->unknown = s->unknown || state == GD_STATE_UNSTABLE || !isfinite(s->numeric[k][e]);
        s->analytic[k][e] = m->c->analytic[s->first + k][m->input][m->at[e]];
    }
    s->wrong[e] = s->wrong[e] && !s->skip[e];
}

/* The evidence of the sets of all outputs, or of that of one output. */
static gd_status gather_evidence(gd_comparison *m, int set, gd_evidence *s)
{
    gd_checker *c = m->c;
    const int64_t most = gd_check_most_sets(c);
    const bool alone = c->alone[set] >= 0;
    *s = (gd_evidence){.c = c,
                       .input = m->input,
                       .argument = m->argument,
                       .count = m->count,
                       .at = m->at,
                       .first = alone ? set : 0,
                       .measured = alone ? 1 : c->options.cotangents,
                       .set = alone ? 0 : set,
                       .cotangent = gd_check_allocate(c, most, sizeof *s->cotangent),
                       .analytic = gd_check_allocate(c, most, sizeof *s->analytic),
                       .numeric = gd_check_allocate(c, most, sizeof *s->numeric),
                       .wrong = gd_check_allocate(c, m->count, sizeof *s->wrong),
                       .skip = gd_check_allocate(c, m->count, sizeof *s->skip),
                       .scale = gd_check_numbers(c, most),
                       .slack = gd_check_numbers(c, most),
                       .rtol = c->options.rtol,
                       .scratch = gd_check_numbers(c, 2 * m->count)};
    s->sets = s->measured;
    if (!s->cotangent || !s->analytic || !s->numeric || !s->wrong || !s->skip || !s->scale ||
        !s->slack || !s->scratch)
        return GD_ERROR_MEMORY;
    for (int k = 0; k < s->measured; k++) {
        const int of = s->first + k;
        s->cotangent[k] = c->cotangent[of];
        s->numeric[k] = m->numeric[of];
        s->analytic[k] = gd_check_numbers(c, m->count);
        if (!s->analytic[k]) return GD_ERROR_MEMORY;
        s->scale[k] = fmax(m->largest[of], m->floor[of]);
        s->slack[k] = slack_of(m, of);
    }
    for (int64_t e = 0; e < m->count; e++) note_states(m, s, e);
    return GD_OK;
}

static gd_status diagnose(gd_comparison *m, int set, gd_gradcheck_input *out)
{
    gd_evidence evidence;
    gd_status status = gather_evidence(m, set, &evidence);
    for (int k = 0; k < evidence.measured && !status && !evidence.others; k++)
        if (out->wrong <= evidence.measured && m->count < m->argument->count)
            status = look_for_others(m, evidence.first + k, &evidence.others);
    if (!status) status = gd_check_diagnose(&evidence, out);
    if (status) return status;
    if (m->c->alone[set] >= 0 && out->finding[0])
        gd_check_say(out, ", with a gradient for output %d alone", m->c->alone[set]);
    return sweep(m, set, out);
}

static gd_status summarise(gd_comparison *m, gd_gradcheck_input *out)
{
    gd_state kind = GD_STATE_RIGHT;
    int set = find_worst(m, out, &kind);
    count_states(m, out);
    if (m->lost && !out->wrong) {
        out->inconclusive++;
        snprintf(out->finding, sizeof out->finding,
                 "a random direction disagrees, but no single element was found that does");
    }
    if (kind == GD_STATE_WRONG) return diagnose(m, set, out);
    return kind == GD_STATE_UNSTABLE ? sweep(m, set, out) : GD_OK;
}

static gd_status prepare(gd_comparison *m)
{
    gd_checker *c = m->c;
    gd_status status = choose(m);
    if (status) return status;
    m->numeric = gd_check_allocate(c, c->sets, sizeof *m->numeric);
    m->state = gd_check_allocate(c, c->sets, sizeof *m->state);
    m->largest = gd_check_numbers(c, c->sets);
    m->floor = gd_check_numbers(c, c->sets);
    m->shaken = gd_check_allocate(c, c->sets, sizeof *m->shaken);
    if (!m->numeric || !m->state || !m->largest || !m->floor || !m->shaken) return GD_ERROR_MEMORY;
    for (int set = 0; set < c->sets; set++) {
        m->numeric[set] = gd_check_numbers(c, m->capacity);
        m->state[set] = gd_check_allocate(c, m->capacity, 1);
        if (!m->numeric[set] || !m->state[set]) return GD_ERROR_MEMORY;
    }
    return GD_OK;
}

gd_status gd_check_compare(gd_checker *c, int input, gd_gradcheck_input *out)
{
    gd_comparison m = {.c = c, .input = input, .argument = &c->input[input]};
    gd_status status = prepare(&m);
    if (!status) status = find_typical(&m);
    if (!status) status = measure(&m);
    if (!status) status = judge_all(&m);
    /* In float32, with its long steps, a direction nearly always crosses kinks. */
    bool coarse_kinks = c->kinks && c->options.step > 1e-4;
    if (!status && m.count < m.argument->count && !c->options.only_element && !coarse_kinks)
        status = go_directions(&m, out);
    return status ? status : summarise(&m, out);
}
