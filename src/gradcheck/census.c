/* census.c - what the wrong elements have in common. The questions are asked in an order in which
 * the more particular answer comes first; the first that fits is the finding. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"

static void say(gd_gradcheck_input *out, const char *format, ...) GD_PRINTF(2, 3);

static void say(gd_gradcheck_input *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t used = strlen(out->finding);
    vsnprintf(out->finding + used, sizeof out->finding - used, format, args);
    va_end(args);
}

static bool wrong(const gd_census *s, int64_t e)
{
    return s->state[e] == GD_STATE_WRONG;
}

static int64_t count_wrong(const gd_census *s)
{
    int64_t n = 0;
    for (int64_t e = 0; e < s->count; e++) n += wrong(s, e);
    return n;
}

/* ---- Not a number, nothing at all --------------------------------------------------------- */

static bool not_finite(const gd_census *s, gd_gradcheck_input *out)
{
    int64_t nan = 0, infinite = 0;
    for (int64_t e = 0; e < s->count; e++) {
        nan += isnan(s->analytic[e]) != 0;
        infinite += isinf(s->analytic[e]) != 0;
    }
    if (nan) say(out, "%lld of %lld are NaN", (long long)nan, (long long)s->count);
    if (infinite)
        say(out, "%s%lld of %lld are infinite", nan ? ", " : "", (long long)infinite,
            (long long)s->count);
    return nan || infinite;
}

static bool all_zero(const gd_census *s, gd_gradcheck_input *out)
{
    for (int64_t e = 0; e < s->count; e++)
        if (s->analytic[e] != 0) return false;
    say(out, "the gradient is zero throughout");
    return true;
}

/* ---- Where -------------------------------------------------------------------------------- */

static int64_t index_along(const gd_argument *a, int64_t element, int axis)
{
    for (int k = a->ndim - 1; k > axis; k--) element /= a->shape[k];
    return element % a->shape[axis];
}

/* " in row 3": all wrong elements have one index along some axis, and there are more than that
 * along it. Nothing is said where they are everywhere. */
static gd_text where(const gd_census *s)
{
    const gd_argument *a = s->argument;
    gd_text text = {""};
    for (int axis = 0; axis < a->ndim; axis++) {
        int64_t index = -1, others = 0;
        bool one = true;
        for (int64_t e = 0; e < s->count && one; e++) {
            int64_t i = index_along(a, s->at[e], axis);
            if (!wrong(s, e)) continue;
            if (index < 0) index = i;
            one = i == index;
        }
        for (int64_t e = 0; e < s->count && one; e++)
            others += index_along(a, s->at[e], axis) != index;
        if (!one || !others || a->shape[axis] < 2) continue;
        const char *kind = a->ndim == 1 ? "at" : axis == a->ndim - 1 ? "in column" : "in row";
        const char *last = index == a->shape[axis] - 1 ? " (the last)" : "";
        if (axis > 0 && axis < a->ndim - 1)
            snprintf(text.text, sizeof text.text, ", all at %lld along axis %d%s", (long long)index,
                     axis, last);
        else
            snprintf(text.text, sizeof text.text, ", all %s %lld%s", kind, (long long)index, last);
        return text;
    }
    return text;
}

static bool single(const gd_census *s, gd_gradcheck_input *out)
{
    if (count_wrong(s) != 1 || s->count < 3) return false;
    say(out, "a single element is off");
    if (out->numeric != 0 && fabs(out->analytic / out->numeric - 1) < 10)
        say(out, ", by %.2g%%", 100 * (out->analytic / out->numeric - 1));
    return true;
}

/* ---- A factor ----------------------------------------------------------------------------- */

/* Ratios analytic / numeric of the wrong elements that are large enough for one, sorted. */
static int64_t ratios(const gd_census *s, double *ratio)
{
    int64_t n = 0;
    for (int64_t e = 0; e < s->count; e++)
        if (wrong(s, e) && fabs(s->numeric[e]) > 1e-2 * s->scale)
            ratio[n++] = s->analytic[e] / s->numeric[e];
    gd_check_sort(ratio, n);
    return n;
}

/* How far ratios of right elements may be apart for the tolerance alone. */
static double ratio_slack(const gd_census *s)
{
    return fmin(1000 * s->rtol, 0.02);
}

/* r as the small fraction that it is; else as a number. */
static gd_text factor_text(const gd_census *s, double r, double spread)
{
    gd_text text;
    double slack = fmin(fmax(20 * s->rtol, 10 * spread / fabs(r)), 0.02);
    const gd_argument *a = s->argument;
    for (int axis = 0; axis < a->ndim; axis++) {
        double size = (double)a->shape[axis];
        bool times = fabs(r / size - 1) < slack;
        if (size < 5 || (!times && fabs(r * size - 1) >= slack)) continue;
        snprintf(text.text, sizeof text.text, "%s%g, the size of axis %d", times ? "" : "1/", size,
                 axis);
        return text;
    }
    for (int q = 1; q <= 12; q++) {
        double p = round(r * q);
        if (p == 0 || p == q || fabs(p) > 64 || fabs(r * q / p - 1) >= slack) continue;
        snprintf(text.text, sizeof text.text, q == 1 ? "%g" : "%g/%d", p, q);
        return text;
    }
    return gd_check_ratio(r);
}

static bool constant_factor(const gd_census *s, gd_gradcheck_input *out)
{
    int64_t n = ratios(s, s->room), wrongs = count_wrong(s);
    if (!n) return false;
    double median = s->room[n / 2];
    double spread = fmax(s->room[n - 1] - median, median - s->room[0]);
    out->ratio_median = median;
    out->ratio_spread = spread;
    if ((wrongs < 2 && s->count > 1) || 2 * n < wrongs) return false;
    if (!(spread <= ratio_slack(s) * fabs(median)) || !(spread <= 0.05 * fabs(median - 1)))
        return false;
    if (fabs(median + 1) < ratio_slack(s))
        say(out, "the sign is flipped");
    else if (fabs(median) < ratio_slack(s))
        say(out, "the gradient is zero at the wrong elements");
    else
        say(out, "a constant factor %s", factor_text(s, median, spread).text);
    say(out, "%s", where(s).text);
    return true;
}

/* ---- Where there should be none --------------------------------------------------------------- */

/* All wrong elements have a gradient where there should be none; or some do, and all others that are
 * wrong have none where there should be one: a mask of another kind. */
static bool should_be_zero(const gd_census *s, gd_gradcheck_input *out)
{
    int64_t extra = 0, lost = 0, wrongs = count_wrong(s);
    for (int64_t e = 0; e < s->count; e++) {
        if (!wrong(s, e)) continue;
        extra += fabs(s->numeric[e]) <= s->rtol * s->scale;
        lost += s->analytic[e] == 0;
    }
    if (!extra || extra + lost < wrongs || extra == s->count) return false;
    if (lost)
        say(out, "zeros in the wrong places: %lld where there should be none, %lld missing",
            (long long)lost, (long long)extra);
    else
        say(out, "a gradient where it should be 0%s", where(s).text);
    return true;
}

/* ---- Right values in wrong places --------------------------------------------------------- */

static bool close_to(const gd_census *s, double a, double b)
{
    return fabs(a - b) <= fmin(10 * s->rtol, 0.01) * s->scale;
}

/* analytic[i, j] = numeric[j, i], in the memory of a matrix that was taken for its transpose. */
static bool transposed(const gd_census *s, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            if (!close_to(s, s->analytic[j * rows + i], s->numeric[i * columns + j])) return false;
    return rows > 1 && columns > 1;
}

static bool shifted(const gd_census *s, int64_t by)
{
    for (int64_t e = 0; e < s->count; e++)
        if (!close_to(s, s->analytic[(e + by) % s->count], s->numeric[e])) return false;
    return s->count > 2;
}

static bool permuted(const gd_census *s, gd_gradcheck_input *out)
{
    const gd_argument *a = s->argument;
    int64_t n = s->count;
    bool moved = false; /* what lies beside its own place by less than we look at has not moved */
    for (int64_t e = 0; e < n; e++) moved = moved || !close_to(s, s->analytic[e], s->numeric[e]);
    if (n != a->count || n < 3 || !moved) return false;
    double *analytic = s->room, *numeric = s->room + n;
    memcpy(analytic, s->analytic, (size_t)n * sizeof *analytic);
    memcpy(numeric, s->numeric, (size_t)n * sizeof *numeric);
    gd_check_sort(analytic, n);
    gd_check_sort(numeric, n);
    for (int64_t e = 0; e < n; e++)
        if (!close_to(s, analytic[e], numeric[e])) return false;

    int64_t columns = a->ndim ? a->shape[a->ndim - 1] : 1;
    say(out, "the right values in the wrong places");
    if (transposed(s, n / columns, columns))
        say(out, ": transposed");
    else if (shifted(s, 1) || shifted(s, n - 1))
        say(out, ": moved by one element");
    else if (shifted(s, columns) || shifted(s, n - columns))
        say(out, ": moved by one row");
    return true;
}

/* ---- Patterns along rows ------------------------------------------------------------------ */

/* What is asked of an element: a number that is the same along a row, or down a column, if the
 * pattern is there. */
typedef double (*gd_pattern)(const gd_census *s, int64_t e);

static double pattern_ratio(const gd_census *s, int64_t e)
{
    return fabs(s->numeric[e]) > 1e-2 * s->scale ? s->analytic[e] / s->numeric[e] : NAN;
}

static double pattern_error(const gd_census *s, int64_t e)
{
    return (s->analytic[e] - s->numeric[e]) / s->scale;
}

static double pattern_error_by_input(const gd_census *s, int64_t e)
{
    double x = s->argument->value[s->at[e]] / s->argument->scale;
    return fabs(x) > 0.05 ? (s->analytic[e] - s->numeric[e]) / s->scale / x : NAN;
}

/* Whether the pattern's number is constant within each of `outer` groups of `inner` elements. NaN
 * takes no part; groups of fewer than three do not count as evidence, and the pattern must cover
 * half of the wrong elements. */
static bool constant_within(const gd_census *s, gd_pattern pattern, int64_t outer, int64_t inner,
                            int64_t outer_stride, int64_t inner_stride)
{
    int64_t evidence = 0, covered = 0;
    double slack = ratio_slack(s);
    for (int64_t i = 0; i < outer; i++) {
        double first = NAN;
        int64_t here = 0;
        for (int64_t j = 0; j < inner; j++) {
            int64_t e = i * outer_stride + j * inner_stride;
            double v = pattern(s, e);
            if (isnan(v)) continue;
            if (isnan(first)) first = v;
            if (!(fabs(v - first) <= slack * fmax(fabs(first), 1e-3))) return false;
            here++;
            covered += wrong(s, e);
        }
        if (here > 2) evidence++;
    }
    return evidence > 0 && 2 * covered >= count_wrong(s);
}

static bool pattern(const gd_census *s, gd_gradcheck_input *out)
{
    enum { ALL, ROWS, COLUMNS };
    static const struct {
        gd_pattern number;
        int within;
        const char *words;
    } questions[] = {
        {pattern_error, ALL, "a constant is added"},
        {pattern_ratio, ROWS, "a factor for each row: a scale along the last axis"},
        {pattern_ratio, COLUMNS, "a factor for each column: a weight"},
        {pattern_error, ROWS, "each row is off by a constant: a mean term"},
        {pattern_error, COLUMNS, "each column is off by a constant"},
        {pattern_error_by_input, ROWS, "each row is off by a multiple of the input"},
    };
    const gd_argument *a = s->argument;
    int64_t columns = a->ndim ? a->shape[a->ndim - 1] : 1;
    if (s->count != a->count || !columns) return false;
    int64_t rows = a->count / columns;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        gd_pattern number = questions[i].number;
        int within = questions[i].within;
        if (!(within == ALL    ? constant_within(s, number, 1, s->count, 0, 1)
              : within == ROWS ? constant_within(s, number, rows, columns, columns, 1)
                               : constant_within(s, number, columns, rows, 1, columns)))
            continue;
        say(out, "%s", questions[i].words);
        return true;
    }
    return false;
}

/* ---- The census --------------------------------------------------------------------------- */

void gd_check_census(const gd_census *s, gd_gradcheck_input *out)
{
    bool known = not_finite(s, out);
    if (!known) known = all_zero(s, out);
    if (!known) known = single(s, out);
    if (!known) known = should_be_zero(s, out);
    if (!known) known = constant_factor(s, out);
    if (!known) known = permuted(s, out);
    if (!known) known = pattern(s, out);
    if (!known && where(s).text[0]) say(out, "no simple factor%s", where(s).text);
}
