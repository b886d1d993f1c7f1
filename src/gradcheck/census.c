/* census.c - what the wrong elements have in common. The hypotheses are tried in order, the most
 * specific first; the first that fits is the finding. It must hold for every element and every set
 * of cotangents, to within the tolerance of the check and to 1/50 of the error. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"

void gd_check_say(gd_gradcheck_input *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t used = strlen(out->finding);
    vsnprintf(out->finding + used, sizeof out->finding - used, format, args);
    va_end(args);
}

static bool wrong(const gd_census *s, int64_t e)
{
    return s->state[s->set][e] == GD_STATE_WRONG;
}

static double analytic(const gd_census *s, int64_t e)
{
    return gd_census_analytic(s, s->set, e);
}

static double numeric(const gd_census *s, int64_t e)
{
    return s->numeric[s->set][e];
}

static double scale(const gd_census *s)
{
    return s->scale[s->set];
}

static int64_t count_wrong(const gd_census *s)
{
    int64_t n = 0;
    for (int64_t e = 0; e < s->count; e++) n += wrong(s, e);
    return n;
}

/* ---- NaN, or all zeros -------------------------------------------------------------------- */

static bool not_finite(const gd_census *s, gd_gradcheck_input *out)
{
    int64_t nan = 0, infinite = 0;
    for (int64_t e = 0; e < s->count; e++) {
        nan += isnan(analytic(s, e)) != 0;
        infinite += isinf(analytic(s, e)) != 0;
    }
    if (nan) gd_check_say(out, "%lld of %lld are NaN", (long long)nan, (long long)s->count);
    if (infinite)
        gd_check_say(out, "%s%lld of %lld are infinite", nan ? ", " : "", (long long)infinite,
                     (long long)s->count);
    return nan || infinite;
}

static bool all_zero(const gd_census *s, gd_gradcheck_input *out)
{
    for (int64_t e = 0; e < s->count; e++)
        if (analytic(s, e) != 0) return false;
    gd_check_say(out, "the gradient is zero throughout");
    return true;
}

/* ---- Where -------------------------------------------------------------------------------- */

/* " in row 3": all wrong elements have the same index along some axis, and other indices were
 * examined too. Empty if there is no such axis. */
static gd_text where(const gd_census *s)
{
    const gd_argument *a = s->argument;
    gd_text text = {""};
    for (int axis = 0; axis < a->ndim; axis++) {
        int64_t index = -1, others = 0;
        bool one = true;
        for (int64_t e = 0; e < s->count && one; e++) {
            int64_t i = gd_check_index(a->ndim, a->shape, s->at[e], axis);
            if (!wrong(s, e)) continue;
            if (index < 0) index = i;
            one = i == index;
        }
        for (int64_t e = 0; e < s->count && one; e++)
            others += gd_check_index(a->ndim, a->shape, s->at[e], axis) != index;
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
    gd_check_say(out, "a single element is off");
    if (out->numeric != 0 && fabs(out->analytic / out->numeric - 1) < 10)
        gd_check_say(out, ", by %.3g%%", 100 * (out->analytic / out->numeric - 1));
    return true;
}

/* ---- A factor ----------------------------------------------------------------------------- */

/* The ratios analytic / numeric of the wrong elements, sorted; elements near 0 are left out. */
static int64_t ratios(const gd_census *s, double *ratio)
{
    int64_t n = 0;
    for (int64_t e = 0; e < s->count; e++)
        if (wrong(s, e) && fabs(numeric(s, e)) > 1e-2 * scale(s))
            ratio[n++] = analytic(s, e) / numeric(s, e);
    gd_check_sort(ratio, n);
    return n;
}

/* Whether the wrong elements are the numeric ones times `factor`, in each set; also in a set where
 * an element is right, else the factor depends on dy. */
static bool holds(const gd_census *s, double factor)
{
    for (int set = s->begin; set < s->end; set++) {
        const double most = s->slack[set] * fmax(1, fabs(factor));
        for (int64_t e = 0; e < s->count; e++)
            if ((s->state[set][e] == GD_STATE_WRONG ||
                 (s->state[set][e] == GD_STATE_RIGHT && wrong(s, e))) &&
                !(fabs(gd_census_analytic(s, set, e) - factor * s->numeric[set][e]) <= most))
                return false;
    }
    return true;
}

static bool constant_factor(const gd_census *s, gd_gradcheck_input *out)
{
    int64_t n = ratios(s, s->room), wrongs = count_wrong(s);
    double largest = 0;
    if (!n) return false;
    double median = s->room[n / 2];
    out->ratio_median = median;
    out->ratio_spread = fmax(s->room[n - 1] - median, median - s->room[0]);
    if ((wrongs < 2 && s->count > 1) || 2 * n < wrongs || !holds(s, median)) return false;
    for (int64_t e = 0; e < s->count; e++)
        if (wrong(s, e)) largest = fmax(largest, fabs(numeric(s, e)));
    const double tolerance = s->slack[s->set] * fmax(1, fabs(median)) / largest;
    if (fabs(median + 1) <= tolerance)
        gd_check_say(out, "the sign is flipped");
    else if (fabs(median) <= tolerance)
        gd_check_say(out, "the gradient is zero at the wrong elements");
    else
        gd_check_say(out, "a constant factor %s",
                     gd_check_factor(s->argument, median, tolerance).text);
    gd_check_say(out, "%s", where(s).text);
    return true;
}

/* ---- Gradients that should be zero --------------------------------------------------------- */

/* Each wrong element has a gradient that should be 0, or is 0 and should not be, and there is at
 * least one of the first kind: a wrong mask. */
static bool should_be_zero(const gd_census *s, gd_gradcheck_input *out)
{
    int64_t extra = 0, lost = 0, wrongs = count_wrong(s);
    for (int64_t e = 0; e < s->count; e++) {
        if (!wrong(s, e)) continue;
        extra += fabs(numeric(s, e)) <= s->rtol * scale(s);
        lost += analytic(s, e) == 0;
    }
    if (!extra || extra + lost < wrongs || extra == s->count) return false;
    if (lost)
        gd_check_say(out,
                     "zeros in the wrong places: %lld where there should be none, %lld missing",
                     (long long)lost, (long long)extra);
    else
        gd_check_say(out, "a gradient where it should be 0%s", where(s).text);
    return true;
}

/* The true gradient is zero, but this one is not. */
static bool all_should_be_zero(const gd_census *s, gd_gradcheck_input *out)
{
    for (int set = s->begin; set < s->end; set++)
        for (int64_t e = 0; e < s->count; e++)
            if (s->numeric[set][e] != 0) return false;
    gd_check_say(out, "the true gradient is zero throughout, this one is not");
    return true;
}

/* ---- Right values in wrong places --------------------------------------------------------- */

static bool close_to(const gd_census *s, double a, double b)
{
    return fabs(a - b) <= s->rtol * scale(s);
}

/* analytic[i, j] = numeric[j, i]: the matrix was taken for its transpose in memory. */
static bool transposed(const gd_census *s, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            if (!close_to(s, analytic(s, j * rows + i), numeric(s, i * columns + j))) return false;
    return rows > 1 && columns > 1;
}

static bool shifted(const gd_census *s, int64_t by)
{
    for (int64_t e = 0; e < s->count; e++)
        if (!close_to(s, analytic(s, (e + by) % s->count), numeric(s, e))) return false;
    return s->count > 2;
}

static bool permuted(const gd_census *s, gd_gradcheck_input *out)
{
    const gd_argument *a = s->argument;
    int64_t n = s->count;
    bool moved = false; /* a difference below the tolerance does not count as moved */
    for (int64_t e = 0; e < n; e++) moved = moved || !close_to(s, analytic(s, e), numeric(s, e));
    if (n != a->count || n < 3 || !moved) return false;
    double *got = s->room, *true_ones = s->room + n;
    for (int64_t e = 0; e < n; e++) {
        got[e] = analytic(s, e);
        true_ones[e] = numeric(s, e);
    }
    gd_check_sort(got, n);
    gd_check_sort(true_ones, n);
    for (int64_t e = 0; e < n; e++)
        if (!close_to(s, got[e], true_ones[e])) return false;

    int64_t columns = a->ndim ? a->shape[a->ndim - 1] : 1;
    gd_check_say(out, "the right values in the wrong places");
    if (transposed(s, n / columns, columns))
        gd_check_say(out, ": transposed");
    else if (shifted(s, 1) || shifted(s, n - 1))
        gd_check_say(out, ": moved by one element");
    else if (shifted(s, columns) || shifted(s, n - columns))
        gd_check_say(out, ": moved by one row");
    return true;
}

/* The analytic gradient is the numeric gradient of another input with the same number of
 * elements. */
static gd_status of_another(const gd_census *s, gd_gradcheck_input *out)
{
    gd_checker *c = s->c;
    for (int i = 0; i < c->inputs && s->count == s->argument->count; i++) {
        const gd_argument *a = &c->input[i];
        bool same = i != s->input && a->wanted && a->count == s->count;
        for (int64_t e = 0; e < s->count && same; e++) {
            gd_move move = {.input = i, .element = e};
            gd_status status = gd_check_slopes(c, &move, c->options.step, c->slope);
            if (status) return status;
            for (int set = s->begin; set < s->end; set++)
                same = same && fabs(gd_census_analytic(s, set, e) - c->slope[set].central) <=
                                   2 * s->slack[set];
        }
        if (!same) continue;
        gd_check_say(out, "it is the gradient of %s", a->name);
        return GD_OK;
    }
    return GD_OK;
}

/* ---- Patterns along rows ------------------------------------------------------------------ */

/* The error at an element that is wrong, else 0. */
static double error_if_wrong(const gd_census *s, int64_t e)
{
    return wrong(s, e) ? analytic(s, e) - numeric(s, e) : 0;
}

/* In at least three rows one element is off by the same error, and perhaps the next element by the
 * opposite error; all other elements are right. */
static bool one_a_row(const gd_census *s, gd_gradcheck_input *out)
{
    const gd_argument *a = s->argument;
    const int64_t columns = a->ndim ? a->shape[a->ndim - 1] : 1;
    const double most = 2 * s->slack[s->set];
    double error = 0;
    int64_t ones = 0, nexts = 0;
    if (s->count != a->count || columns < 3) return false;
    for (int64_t row = 0; row < s->count; row += columns) {
        int64_t here = 0;
        for (int64_t k = 0; k < columns; k++) {
            const double off = error_if_wrong(s, row + k);
            if (off == 0) continue;
            const double before = error_if_wrong(s, row + (k + columns - 1) % columns);
            if (error == 0) error = before != 0 ? before : off;
            if (fabs(off - error) <= most)
                ones++, here++;
            else if (fabs(off + error) <= most && fabs(before - error) <= most)
                nexts++;
            else
                return false;
        }
        if (here > 1) return false;
    }
    if (ones < 3 || (nexts && nexts != ones)) return false;
    gd_check_say(out, "one element of each row is off, each by %.4g%s", error,
                 nexts ? ", and the next by the opposite: its value is one place further" : "");
    return true;
}

/* A function that the error may be a multiple of. */
typedef double (*gd_basis)(const gd_census *s, int set, int64_t e);

static double basis_one(const gd_census *s, int set, int64_t e)
{
    (void)e;
    return s->scale[set];
}

static double basis_gradient(const gd_census *s, int set, int64_t e)
{
    return s->numeric[set][e];
}

static double basis_input(const gd_census *s, int set, int64_t e)
{
    return s->argument->value[s->at[e]] / s->argument->scale * s->scale[set];
}

/* Whether the error of elements from, from + stride, ... in the sets begin ... end - 1 is a f + b g
 * (g may be NULL), by least squares. */
static bool fits(const gd_census *s, int begin, int end, const gd_basis basis[2], int64_t from,
                 int64_t count, int64_t stride)
{
    double ff = 0, fg = 0, gg = 0, fe = 0, ge = 0, a = 0, b = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < (end - begin) * count; i++) {
            const int set = begin + (int)(i / count);
            const int64_t e = from + i % count * stride;
            const double f = basis[0](s, set, e), g = basis[1] ? basis[1](s, set, e) : 0;
            const double error = gd_census_analytic(s, set, e) - s->numeric[set][e];
            if (pass && !(fabs(error - a * f - b * g) <= s->slack[set])) return false;
            if (pass) continue;
            ff += f * f, fg += f * g, gg += g * g, fe += f * error, ge += g * error;
        }
        const double det = ff * gg - fg * fg; /* if it is 0, nothing is within the slack */
        a = basis[1] ? (fe * gg - ge * fg) / det : ff > 0 ? fe / ff : 0;
        b = basis[1] ? (ge * ff - fe * fg) / det : 0;
    }
    return true;
}

static bool pattern(const gd_census *s, gd_gradcheck_input *out)
{
    enum { ALL, ROWS, COLUMNS };
    static const struct {
        gd_basis basis[2];
        int within;
        const char *words;
    } questions[] = {
        {{basis_one}, ALL, "a constant is added"},
        {{basis_gradient}, ROWS, "a factor for each row: a scale along the last axis"},
        {{basis_gradient}, COLUMNS, "a factor for each column: a weight"},
        {{basis_one}, ROWS, "each row is off by a constant: a mean term"},
        {{basis_one}, COLUMNS, "each column is off by a constant"},
        {{basis_input}, ROWS, "each row is off by a multiple of the input"},
        {{basis_one, basis_input},
         ROWS,
         "each row is off by a constant and a multiple of the input"},
    };
    const gd_argument *a = s->argument;
    int64_t columns = a->ndim ? a->shape[a->ndim - 1] : 1;
    if (s->count != a->count || !columns) return false;
    const int64_t rows = a->count / columns;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        const int within = questions[i].within;
        const int64_t lines = within == ALL ? 1 : within == ROWS ? rows : columns;
        const int64_t length = a->count / lines, stride = within == COLUMNS ? columns : 1;
        /* A factor must be the same for each dy; the coefficient of an added term may differ. */
        const int together = questions[i].basis[0] == basis_gradient ? s->end - s->begin : 1;
        bool yes = length > (questions[i].basis[1] ? 4 : 2);
        for (int64_t line = 0; line < lines && yes; line++)
            for (int set = s->begin; set < s->end && yes; set += together)
                yes = fits(s, set, set + together, questions[i].basis,
                           within == COLUMNS ? line : line * length, length, stride);
        if (!yes) continue;
        gd_check_say(out, "%s", questions[i].words);
        return true;
    }
    return false;
}

/* The true gradient sums to 0 along an axis (adding a constant along it does not change the
 * outputs), but this one does not. */
static bool loses_zero_sum(const gd_census *s, gd_gradcheck_input *out)
{
    const gd_argument *a = s->argument;
    for (int axis = 0; axis < a->ndim && s->count == a->count; axis++) {
        int64_t stride = 1, size = a->shape[axis];
        double got = 0, wanted = 0;
        for (int k = axis + 1; k < a->ndim; k++) stride *= a->shape[k];
        for (int64_t e = 0; e < s->count; e++) {
            if (e / stride % size) continue;
            double sum_got = 0, sum_wanted = 0;
            for (int64_t k = 0; k < size; k++) {
                sum_got += analytic(s, e + k * stride);
                sum_wanted += numeric(s, e + k * stride);
            }
            got = fmax(got, fabs(sum_got));
            wanted = fmax(wanted, fabs(sum_wanted));
        }
        const double zero = s->rtol * scale(s);
        if (size < 3 || wanted > zero || got < 50 * zero) continue;
        gd_check_say(out, "%sthe true gradient sums to 0 along axis %d, this one does not",
                     out->finding[0] ? ": " : "", axis);
        return true;
    }
    return false;
}

/* ---- The census --------------------------------------------------------------------------- */

gd_status gd_check_census(const gd_census *s, gd_gradcheck_input *out)
{
    static bool (*const questions[])(const gd_census *, gd_gradcheck_input *) = {
        not_finite, all_zero, single, should_be_zero, constant_factor, permuted, one_a_row};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        if (questions[i](s, out)) return GD_OK;
    gd_status status = of_another(s, out);
    if (status || out->finding[0]) return status;

    if (all_should_be_zero(s, out)) return GD_OK;
    gd_gradcheck_input more = {.finding = ""};
    pattern(s, out);
    loses_zero_sum(s, out);
    status = gd_check_jacobian(s, &more);
    if (more.finding[0]) gd_check_say(out, "%s%s", out->finding[0] ? ": " : "", more.finding);
    if (!out->finding[0] && where(s).text[0]) gd_check_say(out, "no simple factor");
    gd_check_say(out, "%s", where(s).text);
    return status;
}
