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
 * gradient outside is wrong.
 *
 * Where functions round inside, as the long sums of attention in float32 do, slopes differ by more
 * than the ladder knows of, and differently on each processor. So what it leaves open is measured
 * at many steps, whose rounding errors average out. */
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

/* A function that rounds inside, as x^2 + 1600 - 1600 does in float32, moves in jumps, and stands
 * still within short steps, on both sides: then its noise is such a jump, not the rounding of its
 * result. That holds of small jumps; larger ones are the function's. Returns the jump over the
 * input's scale, or 0. */
static double find_jump(const gd_checker *c, double scale, int set, const gd_ladder *ladder)
{
    enum { MOST = 4096 };
    double rounding = 0;
    int last = GD_RUNGS - 1;
    for (int o = 0; o < c->outputs; o++) {
        const gd_result *r = &c->output[o];
        const double *u = c->set[set].cotangent[o];
        const double eps = gd_check_accuracy[r->measured].rounding;
        for (int64_t i = 0; i < r->count && u; i++)
            rounding = fmax(rounding, fabs(u[i] * r->base[i]) * eps);
    }
    while (last > 0 && ladder->slope[last].left == 0 && ladder->slope[last].right == 0) last--;
    const gd_slope *s = &ladder->slope[last];
    const double jump = fmax(fabs(s->left), fabs(s->right)) * ladder->step[last];
    const bool moves = last > 0 && ((s[-1].left != 0 && s[-1].right != 0) ||
                                    (last > 1 && s[-2].left != 0 && s[-2].right != 0));
    if (!moves || last == GD_RUNGS - 1) return 0;
    return jump * scale <= MOST * rounding ? jump : 0;
}

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
    if (shorter == 1) ladder->jump = find_jump(c, c->input[move->input].scale, set, ladder);
    for (int rung = 0; rung < GD_RUNGS; rung++)
        ladder->slope[rung].noise =
            fmax(ladder->slope[rung].noise, ladder->jump / ladder->step[rung]);
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

/* How much the slopes of the two sides change from the rung before. */
static double change_of(const gd_slope *s)
{
    return fmax(fabs(s->left - s[-1].left), fabs(s->right - s[-1].right));
}

bool gd_check_jumps(const gd_ladder *ladder)
{
    const gd_slope *s = &ladder->slope[GD_RUNGS - 1];
    for (int i = 0; i < 3; i++, s--) {
        const double fine = change_of(s), coarse = change_of(s - 1);
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

bool gd_check_flat(const gd_ladder *ladder, double rounding)
{
    const double moved = most_moved(ladder, 0);
    return moved <= 8 * rounding ||
           (moved <= 128 * rounding && moved <= 4 * most_moved(ladder, GD_RUNGS - 3));
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

/* ---- Many steps --------------------------------------------------------------------------- */

/* Fits a + b h^power to the slopes at steps from h down to h/8: 2 for smooth functions, 1 for
 * those, as x |x| at 0, whose slope has a kink. Noise of slopes grows as 1/h, so each weighs h^2.
 * Returns a, and its standard error by how far the slopes are from the fit; infinity if that is
 * more than rounding explains. */
static double fit_slope(gd_checker *c, const gd_move *move, int set, double h, int power,
                        double *error)
{
    enum { COUNT = 48, MOST = 16 };
    const double eps = gd_check_accuracy[c->dtype].rounding;
    double t[COUNT], x[COUNT], y[COUNT], w = 0, mx = 0, my = 0, xx = 0, xy = 0, off = 0, noise = 0;
    for (int k = 0; k < COUNT; k++) {
        t[k] = pow(8, -(double)k / (COUNT - 1));
        gd_check_slopes(c, move, t[k] * h);
        x[k] = pow(t[k], power), y[k] = c->set[set].slope.central;
        noise = fmax(noise, t[k] * (c->set[set].slope.noise + eps * fabs(y[k])));
        w += t[k] * t[k], mx += t[k] * t[k] * x[k], my += t[k] * t[k] * y[k];
    }
    mx /= w, my /= w;
    for (int k = 0; k < COUNT; k++) {
        xx += pow(t[k] * (x[k] - mx), 2);
        xy += t[k] * t[k] * (x[k] - mx) * (y[k] - my);
    }
    const double b = xy / xx, a = my - b * mx;
    for (int k = 0; k < COUNT; k++) off += pow(t[k] * (y[k] - my - b * (x[k] - mx)), 2);
    off = sqrt(off / (COUNT - 2));
    *error = off <= MOST * noise ? off * sqrt(1 / w + mx * mx / xx) : INFINITY;
    return a;
}

bool gd_check_confirms(gd_checker *c, const gd_move *move, int set, const gd_ladder *ladder,
                       double analytic, double tolerance, double *numeric)
{
    for (int power = 2; power > 0; power--) {
        double before = NAN, doubt = INFINITY, error;
        for (int rung = 0; rung < 4 && !gd_check_failed(c); rung++) {
            const double value = fit_slope(c, move, set, ladder->step[rung], power, &error);
            /* What is fitted to steps too long for the function, shorter ones do not show. */
            const bool agree = fabs(value - before) <= fmax(tolerance, 4 * (doubt + error));
            *numeric = doubt < error ? before : value;
            if (agree && 2 * fmin(doubt, error) <= tolerance) {
                if (fabs(*numeric - analytic) <= tolerance) return true;
                break;
            }
            before = value, doubt = error;
        }
    }
    return false;
}

/* ---- Ties --------------------------------------------------------------------------------- */

void gd_check_leave(gd_checker *c, const gd_move *move, int sample, double radius)
{
    double *moved = c->moved_near;
    for (int k = 1; k <= c->inputs; k++) { /* the move's input is the last */
        const int i = (move->input + k) % c->inputs;
        const uint64_t stream = GD_STREAM_NEAR + 50 * (uint64_t)sample + (uint64_t)i;
        const gd_argument *a = &c->input[i];
        if (!a->wanted) continue;
        gd_check_normal(moved, a->count, c->options.seed, stream);
        if (i == move->input && move->element >= 0 && sample % 4 == 3)
            moved[move->element] = sample % 8 == 3 ? 4 : -4;
        for (int64_t e = 0; e < a->count; e++)
            moved[e] = a->value[e] + radius * a->scale * moved[e];
        gd_tensor_write_f64(a->measured, radius > 0 ? moved : a->value, a->count);
    }
}

/* The slopes of each output near x, for one set of cotangents. */
typedef struct gd_range {
    double low, high;  /* the sums of u times the least and the largest slopes */
    double steepest;   /* of all outputs */
    bool flat, inside; /* it is a single slope; the analytic one is in it */
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

/* The range of slopes without ties, at about 64 h from x, until it contains the analytic slope. */
static gd_range look_beside(gd_checker *c, const gd_move *move, int set, double h, double analytic,
                            double slack)
{
    enum { FLAT = 24, MOST = 512 };
    gd_argument *a = &c->input[move->input];
    double *own = a->value;
    gd_range range = {0};
    for (int sample = 0, seen = 0; sample < MOST && !gd_check_failed(c); sample++) {
        gd_check_leave(c, move, sample, c->higher ? 64 * h : 16 * h);
        a->value = c->moved_near;
        if (c->higher) gd_check_slopes(c, move, h / 2);
        const double half = c->set[set].slope.central;
        gd_check_slopes(c, move, h);
        a->value = own;
        /* A gradient that jumps at ties may do so within this step, too. */
        if (c->higher && fabs(c->set[set].slope.central - half) > slack) continue;
        range = widen(c, set, 2 * h * a->scale * c->moved[move->element], !seen++);
        range.flat = range.high - range.low <= 2 * slack;
        const double more = range.flat ? 0 : slack;
        range.inside = analytic >= range.low - more && analytic <= range.high + more;
        if (range.inside || (sample >= FLAT && range.flat)) break;
    }
    gd_check_leave(c, move, 0, 0);
    return range;
}

gd_state gd_check_choice(gd_checker *c, const gd_move *move, int set, const gd_ladder *ladder,
                         double tolerance)
{
    const double analytic = c->set[set].gradient[c->input[move->input].first + move->element];
    const double factor = c->higher && gd_check_jumps(ladder) ? 1 : noise_factor(ladder);
    const int rung = finest(ladder, tolerance / factor);
    const double slack = tolerance + 4 * factor * ladder->slope[rung].noise, h = ladder->step[rung];
    const gd_range near = look_beside(c, move, set, h, analytic, slack);
    if (!near.inside && (near.flat || !c->higher)) return GD_STATE_WRONG;
    const gd_range far = look_beside(c, move, set, 4 * h, analytic, slack);
    /* Where outputs jump, as those that are rounded inside, longer steps show less of a slope. */
    if (near.inside && far.inside && near.steepest <= 3 * far.steepest) return GD_STATE_KINK;
    /* Slopes that differ as much near x as far from it are those at ties, of which these were some;
     * what is only curved differs less. */
    const bool ties = c->higher && far.high - far.low < 2 * (near.high - near.low);
    return ties ? GD_STATE_UNSTABLE : GD_STATE_WRONG;
}
