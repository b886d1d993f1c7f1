/* numeric.c - the numeric derivative, and how accurate it is.
 *
 * A central difference with step h has a truncation error of h^2 f'''/6 and a rounding error of
 * about eps |f| / h; no single h suits every function. So when an element disagrees at the usual
 * step, its slope is measured at a ladder of steps. Each pair of neighbouring rungs is extrapolated
 * to h = 0, and the pair decides that agrees best with the pair before it; of several that agree
 * well, the finest. The analytic value does not influence that choice.
 *
 * A kink is a point where the slopes to the left and to the right differ, and keep differing as h
 * shrinks; for a smooth function their difference shrinks with h. At a kink any gradient between
 * the two slopes is accepted (a subgradient), and any that is made of a choice for each output. A
 * gradient outside is wrong. */
#include <math.h>
#include <string.h>

#include "gradcheck/check.h"

/* ---- Slopes ------------------------------------------------------------------------------- */

/* Moves the input by `length`, with the values as stored in `at`, and runs the function. The
 * move of a single element neither computes nor reads back the others: inputs may be large. */
static void move_and_run(gd_checker *c, const gd_move *move, double length, double *at, int side)
{
    gd_argument *a = &c->input[move->input];
    const int64_t e = move->element;
    const gd_dtype dtype = gd_tensor_dtype(a->measured);
    const bool known = e >= 0 && gd_dtype_size(dtype) > 2; /* how it is stored */
    if (e >= 0) {
        memcpy(at, a->value, (size_t)a->count * sizeof *at);
        at[e] += length;
        if (dtype == GD_FLOAT32) at[e] = (double)(float)at[e];
    } else {
        for (int64_t i = 0; i < a->count; i++) at[i] = a->value[i] + length * move->direction[i];
    }
    gd_tensor_write_f64(a->measured, at, a->count);
    if (!known) gd_tensor_read_f64(a->measured, at, a->count);
    gd_check_forward(c, side);
}

bool gd_check_overflows(gd_dtype dtype, double got, double wanted)
{
    return dtype == GD_FLOAT16 && isinf(got) && got * wanted > 0 && fabs(wanted) > 65000;
}

/* a - b; 0 if both are the same infinity. */
static double difference(double a, double b)
{
    return a == b ? 0 : a - b;
}

/* u . f at the moved inputs, minus u . f before. */
static gd_slope slope_of_set(const gd_checker *c, int set, double left, double right)
{
    double both = 0, up = 0, down = 0, noise = 0;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        const double *u = c->set[set].cotangent[o];
        if (!u) continue;
        double eps = gd_check_accuracy[r->measured].rounding;
        for (int64_t i = 0; i < r->count; i++) {
            both += u[i] * difference(r->plus[i], r->minus[i]);
            up += u[i] * difference(r->plus[i], r->base[i]);
            down += u[i] * difference(r->base[i], r->minus[i]);
            double rounded = u[i] * r->base[i] * eps;
            if (r->moves[i] && isfinite(rounded)) noise += rounded * rounded;
        }
    }
    return (gd_slope){.central = left > 0 && right > 0 ? both / (left + right) : NAN,
                      .left = down / left,
                      .right = up / right,
                      .noise = 2 * sqrt(noise) / (left + right)};
}

void gd_check_slopes(gd_checker *c, const gd_move *move, double h)
{
    gd_argument *a = &c->input[move->input];
    double length = h * a->scale, left = length, right = length;
    move_and_run(c, move, length, c->moved, 1);
    move_and_run(c, move, -length, c->moved_back, -1);
    int64_t first = 0, end = a->count;
    if (move->element >= 0) { /* the steps as they were stored */
        first = move->element, end = first + 1;
        left = a->value[first] - c->moved_back[first];
        right = c->moved[first] - a->value[first];
    }
    for (int64_t i = first; i < end; i++)
        c->moved[i] = (c->moved[i] - c->moved_back[i]) / (2 * length);
    for (int o = 0; o < c->outputs; o++) {
        gd_result *r = &c->output[o];
        for (int64_t i = 0; i < r->count; i++)
            r->moves[i] |= r->plus[i] != r->minus[i] || r->plus[i] != r->base[i];
    }
    for (int set = 0; set < c->sets; set++) c->set[set].slope = slope_of_set(c, set, left, right);
    gd_tensor_write_f64(a->measured, a->value, a->count);
}

/* ---- The ladder --------------------------------------------------------------------------- */

void gd_check_ladder(gd_checker *c, const gd_move *move, int set, double shorter, gd_ladder *ladder)
{
    double h = 16 * c->options.step * shorter;
    /* What moved at longer steps has a rounding error at shorter ones. */
    for (int o = 0; o < c->outputs && shorter == 1; o++)
        memset(c->output[o].moves, 0, (size_t)c->output[o].count);
    for (int rung = 0; rung < GD_RUNGS; rung++, h /= 4) {
        gd_check_slopes(c, move, h);
        ladder->step[rung] = h;
        ladder->slope[rung] = c->set[set].slope;
    }
}

/* How much larger the function's noise is than the rounding of its result. Noise in slopes grows as
 * h shrinks, so at the finest two pairs of rungs they differ by noise alone. 1 if it is as
 * expected. */
static double noise_factor(const gd_ladder *ladder)
{
    double factor = 1;
    int rung = GD_RUNGS - 1;
    while (rung > 2 && !isfinite(ladder->slope[rung].central)) rung--;
    for (int i = 0; i < 2; i++, rung--) {
        const gd_slope *fine = &ladder->slope[rung];
        double apart = fabs(fine->central - ladder->slope[rung - 1].central);
        if (!(apart > fine->noise)) return 1;
        factor = fmax(factor, apart / fine->noise);
    }
    return factor > 16 && isfinite(factor) ? factor : 1;
}

static double jump_of(const gd_slope *s)
{
    return fabs(s->right - s->left);
}

/* Whether the one-sided slopes approach each other like those of a smooth function: at a quarter of
 * the step they differ by a quarter, twice. With a kink within the step they do not. */
static bool curved(const gd_ladder *ladder, int rung)
{
    const gd_slope *s = &ladder->slope[rung];
    for (int i = 0; i < 2; i++, s--) {
        if (rung < 2 || !(jump_of(s) < jump_of(s - 1) / 2.5 && jump_of(s) > jump_of(s - 1) / 6))
            return false;
    }
    return true;
}

gd_estimate gd_check_estimate(const gd_ladder *ladder, double tolerance, bool kinks)
{
    gd_estimate best = {.value = NAN, .error = INFINITY, .rung = 1};
    double least = INFINITY, factor = noise_factor(ladder), before = ladder->slope[0].central;
    for (int rung = 1; rung < GD_RUNGS; rung++) {
        const gd_slope *coarse = &ladder->slope[rung - 1], *fine = &ladder->slope[rung];
        double apart = fine->central - coarse->central, noise = factor * fine->noise;
        /* Richardson extrapolation: a quarter of the step has a sixteenth of the error. */
        double value = fine->central + apart / 15;
        double change = fabs(value - before), doubt = change + noise;
        before = isfinite(value) ? value : fine->central;
        /* A kink within the step moves the central slope by up to half of the jump. */
        if (kinks && jump_of(fine) > 2 * (tolerance + 2 * noise) && !curved(ladder, rung)) continue;
        if (!(doubt <= least)) continue;
        least = fmax(doubt, tolerance / 8); /* of pairs that agree well the finest decides */
        best.value = value;
        best.error = fmax(fabs(apart), change) / 3 + noise;
        best.rung = rung;
    }
    return best;
}

/* The finest rung whose rounding error is below the tolerance. */
static int finest(const gd_ladder *ladder, double tolerance)
{
    int rung = GD_RUNGS - 1;
    while (rung > 1 && !(4 * ladder->slope[rung].noise <= tolerance)) rung--;
    return rung;
}

/* Whether both one-sided slopes agree with those of the rung before, but differ from each other:
 * the kink is at x. */
static bool is_kink(const gd_slope *s, const gd_slope *before, double slack)
{
    double jump = jump_of(s);
    return jump > 2 * slack && fabs(s->left - before->left) <= jump / 4 &&
           fabs(s->right - before->right) <= jump / 4;
}

/* Whether there is a kink near x, closer than h, and the gradient equals the slope on x's side of
 * it, which does not change with h and is the true one. */
static bool beside_kink(const gd_slope *s, const gd_slope *before, double analytic, double slack)
{
    return jump_of(s) > 2 * slack &&
           ((fabs(s->left - before->left) <= slack && fabs(analytic - s->left) <= slack) ||
            (fabs(s->right - before->right) <= slack && fabs(analytic - s->right) <= slack));
}

/* Whether the slope stays between the two slopes at a kink, within rounding, as the steps become
 * finer. If not, it was the function's curvature. */
static bool keeps_kink(const gd_ladder *ladder, int rung, double slack)
{
    const gd_slope *s = &ladder->slope[rung], *finer = s + 1;
    const double factor = noise_factor(ladder);
    for (; finer < ladder->slope + GD_RUNGS; finer++) {
        const double most = slack + 4 * factor * finer->noise;
        if (!(finer->central >= fmin(s->left, s->right) - most &&
              finer->central <= fmax(s->left, s->right) + most))
            return false;
    }
    return true;
}

/* GD_STATE_KINK: a kink, and the gradient is a subgradient; GD_STATE_WRONG: a kink, and it is not;
 * GD_STATE_UNSTABLE: no kink was found. */
static gd_state judge_kink(const gd_ladder *ladder, double analytic, double tolerance)
{
    int rung = finest(ladder, tolerance);
    const gd_slope *s = &ladder->slope[rung];
    double slack = tolerance + 4 * s->noise;
    if (is_kink(s, s - 1, slack)) {
        /* A side that curves changes by a third as much between this step and none as it did since
         * the step before. */
        const double bend = fmax(fabs(s->left - s[-1].left), fabs(s->right - s[-1].right)) / 2;
        const double most = 4 * (noise_factor(ladder) - 1) * s->noise;
        const double low = fmin(s->left, s->right) - slack - bend;
        const double high = fmax(s->left, s->right) + slack + bend;
        if (analytic >= low && analytic <= high) return GD_STATE_KINK;
        const bool outside = analytic < low - most || analytic > high + most;
        return outside && keeps_kink(ladder, rung, slack) ? GD_STATE_WRONG : GD_STATE_UNSTABLE;
    }
    for (int coarser = 0; coarser < 3 && rung > coarser; coarser++, s--)
        if (beside_kink(s, s - 1, analytic, tolerance + 4 * s->noise)) return GD_STATE_KINK;
    return GD_STATE_UNSTABLE;
}

/* Whether a pair of coarser rungs agrees with the gradient, and better with each other than with
 * the estimate: then the finer steps were too short for a function that rounds inside, to float32
 * or beside a large mean. */
static bool too_fine(const gd_ladder *ladder, const gd_estimate *estimate, double analytic,
                     double tolerance)
{
    for (int rung = 1; rung < estimate->rung; rung++) {
        const double central = ladder->slope[rung].central;
        const double apart = central - ladder->slope[rung - 1].central;
        const double value = central + apart / 15, most = tolerance + fabs(apart);
        if (fabs(value - analytic) <= 2 * most && fabs(value - estimate->value) > 8 * most)
            return true;
    }
    return false;
}

bool gd_check_jumps(const gd_ladder *ladder)
{
    const gd_slope *s = &ladder->slope[GD_RUNGS - 1];
    for (int i = 0; i < 3; i++, s--) {
        const double fine = fmax(fabs(s->left), fabs(s->right));
        const double coarse = fmax(fabs(s[-1].left), fabs(s[-1].right));
        const bool grows = fine > 3.5 * coarse && fine < 18 * coarse;
        if (!grows || !(fine > 64 * s->noise)) return false;
    }
    return true;
}

/* How far the function moves within a step, at most, at three rungs. */
static double most_moved(const gd_ladder *ladder, int rung)
{
    double most = 0;
    for (int end = rung + 3; rung < end; rung++) {
        const gd_slope *s = &ladder->slope[rung];
        most = fmax(most, fmax(fabs(s->left), fabs(s->right)) * ladder->step[rung]);
    }
    return most;
}

/* Whether all steps are longer than what the function does, as those of 1e4 are for a sine: it
 * moves far more than by rounding, and no less within shorter steps. */
static bool aliased(const gd_ladder *ladder)
{
    const int last = GD_RUNGS - 1;
    const double moved = most_moved(ladder, last - 2);
    return moved > 1e4 * ladder->slope[last].noise * ladder->step[last] &&
           moved > most_moved(ladder, 0) / 16;
}

/* Whether the numeric derivative is not to be trusted. A rung finer than the estimate's agrees with
 * the gradient, within rounding, or is far from the estimate: then the longer steps were too long
 * for the function near x. */
bool gd_check_contradicted(const gd_ladder *ladder, const gd_estimate *estimate, double analytic,
                           double tolerance)
{
    const double factor = noise_factor(ladder), gap = fabs(analytic - estimate->value);
    if (too_fine(ladder, estimate, analytic, tolerance)) return true;
    if (aliased(ladder)) return true;
    for (int rung = estimate->rung + 1; rung < GD_RUNGS; rung++) {
        const double central = ladder->slope[rung].central,
                     noise = factor * ladder->slope[rung].noise,
                     away = fabs(central - estimate->value);
        if (away > gap / 2 && away > tolerance + 4 * ladder->slope[rung].noise) return true;
        if (away > gap / 32 && away > tolerance + 3 * estimate->error + 4 * noise) return true;
        if (noise <= 2 * gap && fabs(central - analytic) <= tolerance + noise / 4 &&
            away > tolerance + noise / 2)
            return true;
    }
    return false;
}

gd_state gd_check_judge(const gd_ladder *ladder, double analytic, double tolerance, bool kinks,
                        double *numeric)
{
    gd_estimate estimate = gd_check_estimate(ladder, tolerance, kinks);
    double gap = fabs(analytic - estimate.value);
    *numeric = estimate.value;
    if (!isfinite(analytic)) return GD_STATE_WRONG;
    if (gap <= tolerance) return GD_STATE_RIGHT;
    if (kinks) {
        gd_state state = judge_kink(ladder, analytic, tolerance);
        if (isnan(*numeric)) *numeric = ladder->slope[finest(ladder, tolerance)].central;
        if (state != GD_STATE_UNSTABLE) return state;
    }
    if (gd_check_contradicted(ladder, &estimate, analytic, tolerance)) return GD_STATE_UNSTABLE;
    return gap > tolerance + 3 * estimate.error ? GD_STATE_WRONG : GD_STATE_UNSTABLE;
}

/* ---- Ties --------------------------------------------------------------------------------- */

/* Moves all inputs by about `radius` of their scale, at random, so that there are no ties; with 0 back
 * to their values. Of `input` the values are then in c->moved_near. */
static void leave_ties(gd_checker *c, int input, int sample, double radius)
{
    double *moved = c->moved_near;
    for (int k = 1; k <= c->inputs; k++) { /* `input` is the last */
        const int i = (input + k) % c->inputs;
        const uint64_t stream = GD_STREAM_NEAR + 50 * (uint64_t)sample + (uint64_t)i;
        const gd_argument *a = &c->input[i];
        if (!a->wanted) continue;
        gd_check_normal(moved, a->count, c->options.seed, stream);
        for (int64_t e = 0; e < a->count; e++)
            moved[e] = a->value[e] + radius * a->scale * moved[e];
        gd_tensor_write_f64(a->measured, radius > 0 ? moved : a->value, a->count);
    }
}

/* The slopes of each output near x, for one set of cotangents. */
typedef struct gd_range {
    double low, high; /* the sums of u times the least and the largest slopes */
    double steepest;  /* of all outputs */
} gd_range;

/* Widens the range by the slopes just measured, or begins it. */
static gd_range widen(const gd_checker *c, int set, double apart, bool begin)
{
    gd_range sum = {0};
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        const double *u = c->set[set].cotangent[o];
        for (int64_t k = 0; k < r->count && u; k++) {
            const double slope = difference(r->plus[k], r->minus[k]) / apart;
            r->low[k] = begin ? slope : fmin(r->low[k], slope);
            r->high[k] = begin ? slope : fmax(r->high[k], slope);
            sum.low += fmin(u[k] * r->low[k], u[k] * r->high[k]);
            sum.high += fmax(u[k] * r->low[k], u[k] * r->high[k]);
            sum.steepest = fmax(sum.steepest, fmax(fabs(r->low[k]), fabs(r->high[k])));
        }
    }
    return sum;
}

bool gd_check_choice(gd_checker *c, int input, int64_t element, int set, const gd_ladder *ladder,
                     double tolerance)
{
    enum { FLAT = 24, MOST = 128 };
    gd_argument *a = &c->input[input];
    const gd_move move = {.input = input, .element = element};
    const double analytic = c->set[set].gradient[a->first + element];
    const double factor = noise_factor(ladder);
    const int rung = finest(ladder, tolerance / factor);
    const double slack = tolerance + 4 * factor * ladder->slope[rung].noise;
    double *own = a->value, h = ladder->step[rung], steepest = 0;
    bool is = true;
    for (int pass = 0; pass < 2 && is; pass++, h *= 4) {
        gd_range range = {0};
        is = false;
        for (int sample = 0; sample < MOST && !is && !gd_check_failed(c); sample++) {
            leave_ties(c, input, sample, 16 * h);
            a->value = c->moved_near;
            gd_check_slopes(c, &move, h);
            a->value = own;
            range = widen(c, set, 2 * h * a->scale * c->moved[element], !sample);
            const bool flat = range.high - range.low <= 2 * slack;
            is = !flat && analytic >= range.low - slack && analytic <= range.high + slack;
            if (sample == FLAT && flat) break;
        }
        /* Where outputs jump, as those that are rounded inside, longer steps show less of a slope. */
        is = is && (!pass || steepest <= 2 * range.steepest);
        steepest = range.steepest;
    }
    leave_ties(c, input, 0, 0);
    return is;
}
