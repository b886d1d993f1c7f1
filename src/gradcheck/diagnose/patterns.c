/* patterns.c - what the wrong elements have in common. The hypotheses are tried in order, the most
 * specific first; the first that fits is the finding. It must hold for every element, every set of
 * cotangents of the check and every probe (evidence.c), so for the whole Jacobian, to within the
 * tolerance of the check and to 1/50 of the error. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"

/* Those of the set with the worst element. */
static double analytic(const gd_evidence *s, int64_t e)
{
    return s->analytic[s->set][e];
}

static double numeric(const gd_evidence *s, int64_t e)
{
    return s->numeric[s->set][e];
}

static int64_t count_wrong(const gd_evidence *s)
{
    int64_t n = 0;
    for (int64_t e = 0; e < s->count; e++) n += s->wrong[e];
    return n;
}

/* Whether every element of the gradient was examined, and none is at a kink. */
static bool complete(const gd_evidence *s)
{
    bool all = s->count == s->argument->count;
    for (int64_t e = 0; e < s->count; e++) all = all && !s->skip[e];
    return all;
}

/* Whether an element's gradient is `factor` times the true one, for all cotangents. */
static bool is_multiple(const gd_evidence *s, int64_t e, double factor)
{
    for (int set = 0; set < s->sets; set++)
        if (!(fabs(s->analytic[set][e] - factor * s->numeric[set][e]) <=
              s->slack[set] * fmax(1, fabs(factor))))
            return false;
    return true;
}

/* Whether an element's gradient is exactly 0 for all cotangents. */
static bool is_zero(const gd_evidence *s, int64_t e)
{
    for (int set = 0; set < s->sets; set++)
        if (s->analytic[set][e] != 0) return false;
    return true;
}

/* Whether an element's true gradient is 0, within the tolerance, for all cotangents. */
static bool should_be_zero(const gd_evidence *s, int64_t e)
{
    for (int set = 0; set < s->sets; set++)
        if (!(fabs(s->numeric[set][e]) <= s->rtol * s->scale[set])) return false;
    return true;
}

/* ---- NaN, or all zeros -------------------------------------------------------------------- */

/* What elements are if their memory held a number before, instead of the probe's NaN. */
typedef struct gd_garbage {
    int64_t unwritten, added, other;
} gd_garbage;

/* Tells a NaN that was in the memory of a gradient from one that the backward computes: with 0 and
 * with another number in its place. */
static gd_status look_for_garbage(const gd_evidence *s, gd_garbage *found)
{
    gd_checker *c = s->c;
    double **gradient[2], size = 0;
    if (!c->probe) return GD_OK;
    for (int k = 0; k < 2; k++) {
        gd_status status = gd_check_make_gradients(c, &gradient[k]);
        c->probe->fill = k ? size : 0;
        if (!status) status = gd_check_backward(c, s->cotangent[s->set], gradient[k]);
        c->probe->fill = NAN;
        if (status) return status;
        for (int64_t e = 0; e < s->count && !k; e++) {
            const double g = fabs(gradient[0][s->input][s->at[e]]);
            if (isfinite(g)) size = fmax(size, g);
        }
        size = size > 0 ? ldexp(1, ilogb(size)) : 1;
    }
    for (int64_t e = 0; e < s->count; e++) {
        const double zero = gradient[0][s->input][s->at[e]], one = gradient[1][s->input][s->at[e]];
        if (!isnan(analytic(s, e)) || !isfinite(zero) || !isfinite(one)) continue;
        found->unwritten += zero == 0 && one == size;
        found->added += zero != 0 && fabs(one - zero - size) <= 0.01 * size;
        found->other += fabs(one - zero - size) > 0.01 * size;
    }
    if (found->added) found->added += found->unwritten, found->unwritten = 0;
    return GD_OK;
}

static gd_status not_finite(const gd_evidence *s, gd_gradcheck_input *out)
{
    int64_t nan = 0, infinite = 0;
    gd_garbage found = {0};
    for (int64_t e = 0; e < s->count; e++) {
        nan += isnan(analytic(s, e)) != 0;
        infinite += isinf(analytic(s, e)) != 0;
    }
    gd_status status = nan ? look_for_garbage(s, &found) : GD_OK;
    nan -= found.unwritten + found.added + found.other;
    const struct {
        int64_t count;
        const char *are;
    } kinds[] = {
        {found.unwritten, "are not written: the NaN that their memory held is still there"},
        {found.added, "are added to what their memory held, a NaN, though accumulate is not set"},
        {found.other, "depend on what their memory held, a NaN, though accumulate is not set"},
        {nan, "are NaN"},
        {infinite, "are infinite"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].count)
            gd_check_say(out, "%s%lld of %lld %s", out->finding[0] ? ", " : "",
                         (long long)kinds[i].count, (long long)s->count, kinds[i].are);
    return status;
}

static bool all_zero(const gd_evidence *s, gd_gradcheck_input *out)
{
    for (int64_t e = 0; e < s->count; e++)
        if (!is_zero(s, e)) return false;
    gd_check_say(out, "the gradient is zero throughout");
    return true;
}

/* ---- Where -------------------------------------------------------------------------------- */

/* " in row 3": all wrong elements have the same index along some axis, and other indices were
 * examined too. Empty if there is no such axis. */
static gd_text where(const gd_evidence *s)
{
    const gd_argument *a = s->argument;
    gd_text text = {""};
    for (int axis = 0; axis < a->ndim; axis++) {
        int64_t index = -1, others = 0;
        bool one = true;
        for (int64_t e = 0; e < s->count && one; e++) {
            int64_t i = gd_check_index(a->ndim, a->shape, s->at[e], axis);
            if (!s->wrong[e]) continue;
            if (index < 0) index = i;
            one = i == index;
        }
        for (int64_t e = 0; e < s->count && one; e++)
            others += gd_check_index(a->ndim, a->shape, s->at[e], axis) != index;
        if (!one || !others || index < 0 || a->shape[axis] < 2) continue;
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

/* The element that is off with a set's cotangents, -1 if none is; or -2 for several, also if all but
 * one are within the tolerance. */
static int64_t only_one(const gd_evidence *s, int set)
{
    int64_t one = -1;
    for (int64_t e = 0; e < s->count; e++) {
        const double gap = fabs(s->analytic[set][e] - s->numeric[set][e]);
        if (s->skip[e] || gap <= 2 * s->slack[set]) continue;
        if (one >= 0) return -2;
        one = e;
    }
    return one;
}

/* Whether with each dy another element is off, by the same factor: the backward looks for it. */
static bool one_for_each_dy(const gd_evidence *s, double factor)
{
    int64_t first = -1;
    bool another = false;
    for (int set = 0; set < s->sets; set++) {
        const int64_t one = only_one(s, set);
        if (one >= 0 && first < 0) first = one;
        another = another || (one >= 0 && one != first);
        if (one == -2 || (one < 0 && set < s->measured)) return false;
        if (one >= 0 && !(fabs(s->analytic[set][one] - factor * s->numeric[set][one]) <=
                          s->slack[set] * fmax(1, fabs(factor))))
            return false;
    }
    return another;
}

static bool single(const gd_evidence *s, gd_gradcheck_input *out)
{
    const double factor = out->analytic / out->numeric;
    const bool known = isfinite(factor) && fabs(factor - 1) < 10, one = count_wrong(s) == 1;
    bool multiple = known;
    if (s->count < 3 || s->others ||
        (one ? out->wrong != 1 : !known || !one_for_each_dy(s, factor)))
        return false;
    for (int set = 0; set < s->sets && one; set++) {
        const int64_t e = only_one(s, set);
        if (e == -2 || (e >= 0 && !s->wrong[e])) return false;
        multiple = multiple && (e < 0 || is_multiple(s, e, factor));
    }
    gd_check_say(out, "a single element is off");
    if (multiple) gd_check_say(out, ", by %.3g%%", 100 * (factor - 1));
    if (!one) gd_check_say(out, ", another one with each dy");
    return true;
}

/* ---- A factor ----------------------------------------------------------------------------- */

/* Notes the ratios analytic / numeric of the wrong elements, but for those near 0. Returns how many
 * there are. */
static int64_t note_ratios(const gd_evidence *s, gd_gradcheck_input *out)
{
    double *ratio = s->scratch;
    int64_t n = 0;
    for (int64_t e = 0; e < s->count; e++)
        if (s->wrong[e] && fabs(numeric(s, e)) > 1e-2 * s->scale[s->set])
            ratio[n++] = analytic(s, e) / numeric(s, e);
    gd_check_sort(ratio, n);
    if (!n) return 0;
    out->ratio_median = ratio[n / 2];
    out->ratio_spread = fmax(ratio[n - 1] - ratio[n / 2], ratio[n / 2] - ratio[0]);
    return n;
}

/* Says which elements a finding is about, if not all: ", all in row 3", or how many. */
static void say_which(const gd_evidence *s, gd_gradcheck_input *out)
{
    const gd_text place = where(s);
    if (*place.text)
        gd_check_say(out, "%s", place.text);
    else
        gd_check_say(out, ", at %lld of %lld elements", (long long)count_wrong(s),
                     (long long)s->count);
}

/* The factor of elements of which `largest` is the largest numeric one. */
static void say_factor(const gd_evidence *s, double factor, double largest, gd_gradcheck_input *out)
{
    const double tolerance = s->slack[s->set] * fmax(1, fabs(factor)) / largest;
    if (fabs(factor + 1) <= tolerance)
        gd_check_say(out, "the sign is flipped");
    else
        gd_check_say(out, "a constant factor %s",
                     gd_check_factor(s->argument, factor, tolerance).text);
}

/* All elements share a factor, also those that are within the tolerance, and for two it is not 1. */
static bool same_factor(const gd_evidence *s, gd_gradcheck_input *out)
{
    double up = 0, down = 0, largest = 0;
    int64_t shown = 0;
    for (int64_t e = 0; e < s->count; e++) {
        if (s->skip[e]) continue;
        up += analytic(s, e) * numeric(s, e), down += numeric(s, e) * numeric(s, e);
        largest = fmax(largest, fabs(numeric(s, e)));
    }
    for (int64_t e = 0; e < s->count; e++) {
        if (!s->skip[e] && !is_multiple(s, e, up / down)) return false;
        shown += !s->skip[e] && !is_multiple(s, e, 1);
    }
    if (shown < 2 && s->count > 1) return false;
    note_ratios(s, out);
    say_factor(s, up / down, largest, out);
    return true;
}

/* Some elements do. */
static bool constant_factor(const gd_evidence *s, gd_gradcheck_input *out)
{
    const int64_t n = note_ratios(s, out), wrongs = count_wrong(s);
    double largest = 0;
    bool zero = true;
    if (wrongs < 2 || 2 * n < wrongs) return false;
    for (int64_t e = 0; e < s->count; e++) {
        if (!s->wrong[e]) continue;
        if (!is_multiple(s, e, out->ratio_median)) return false;
        zero = zero && is_zero(s, e);
        largest = fmax(largest, fabs(numeric(s, e)));
    }
    if (zero) {
        gd_check_say(out, "the gradient is zero at the wrong elements%s", where(s).text);
        return true;
    }
    say_factor(s, out->ratio_median, largest, out);
    say_which(s, out);
    return true;
}

/* ---- Gradients that should be zero -------------------------------------------------------- */

/* Each wrong element has a gradient that should be 0, or is 0 and should not be, and there is at
 * least one of the first kind: a wrong mask. */
static bool wrong_mask(const gd_evidence *s, gd_gradcheck_input *out)
{
    int64_t extra = 0, lost = 0, wrongs = count_wrong(s);
    for (int64_t e = 0; e < s->count; e++) {
        if (!s->wrong[e]) continue;
        if (should_be_zero(s, e))
            extra++;
        else if (is_zero(s, e))
            lost++;
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
static bool all_should_be_zero(const gd_evidence *s, gd_gradcheck_input *out)
{
    for (int set = 0; set < s->sets; set++)
        for (int64_t e = 0; e < s->count; e++)
            if (s->numeric[set][e] != 0) return false;
    gd_check_say(out, "the true gradient is zero throughout, this one is not");
    return true;
}

/* ---- Right values in wrong places --------------------------------------------------------- */

/* Whether element `to` of the gradient is element `from` of the true one, for all cotangents. */
static bool moved(const gd_evidence *s, int64_t from, int64_t to)
{
    for (int set = 0; set < s->sets; set++)
        if (!(fabs(s->analytic[set][to] - s->numeric[set][from]) <= s->rtol * s->scale[set]))
            return false;
    return true;
}

/* analytic[i, j] = numeric[j, i]: the matrix was taken for its transpose in memory. */
static bool transposed(const gd_evidence *s, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            if (!moved(s, i * columns + j, j * rows + i)) return false;
    return rows > 1 && columns > 1;
}

static bool shifted(const gd_evidence *s, int64_t by)
{
    for (int64_t e = 0; e < s->count; e++)
        if (!moved(s, e, (e + by) % s->count)) return false;
    return s->count > 2;
}

/* Whether each element is one of the true gradient's, each of which is somewhere. */
static bool is_permutation(const gd_evidence *s)
{
    bool *taken = gd_check_allocate(s->c, s->count, sizeof *taken);
    for (int64_t to = 0; to < s->count && taken; to++) {
        int64_t from = to; /* most are in their place */
        if (taken[from] || !moved(s, from, to))
            for (from = 0; from < s->count; from++)
                if (!taken[from] && moved(s, from, to)) break;
        if (from == s->count) return false;
        taken[from] = true;
    }
    return taken != NULL;
}

static bool permuted(const gd_evidence *s, gd_gradcheck_input *out)
{
    const gd_argument *a = s->argument;
    const int64_t n = s->count, columns = a->ndim ? a->shape[a->ndim - 1] : 1;
    bool all = true; /* a difference below the tolerance does not count as moved */
    if (!complete(s) || n < 3) return false;
    for (int64_t e = 0; e < n; e++) all = all && moved(s, e, e);
    if (all || !is_permutation(s)) return false;
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
static gd_status of_another(const gd_evidence *s, gd_gradcheck_input *out)
{
    gd_checker *c = s->c;
    double *slope = gd_check_numbers(c, 2 * (int64_t)s->sets);
    if (!slope) return GD_ERROR_MEMORY;
    for (int i = 0; i < c->inputs && complete(s); i++) {
        const gd_argument *a = &c->input[i];
        bool same = i != s->input && a->wanted && a->count == s->count;
        for (int64_t e = 0; e < s->count && same; e++) {
            gd_status status =
                gd_check_probe_slopes(s, i, e, c->options.step, slope, slope + s->sets);
            if (status) return status;
            for (int set = 0; set < s->sets; set++)
                same = same && fabs(s->analytic[set][e] - slope[set]) <= 2 * s->slack[set];
        }
        if (!same) continue;
        gd_check_say(out, "it is the gradient of %s", a->name);
        return GD_OK;
    }
    return GD_OK;
}

/* ---- Patterns along rows ------------------------------------------------------------------ */

/* In each row of a set one element is off by the same error, and perhaps the next element by the
 * opposite error; all other elements are right. `first` [rows] are the places of the former. */
static bool off_in_rows(const gd_evidence *s, int set, int64_t columns, const int64_t *first,
                        bool nexts, double *error)
{
    const double most = 2 * s->slack[set];
    *error = NAN;
    for (int64_t e = 0; e < s->count; e++) {
        const int64_t place = first[e / columns], next = place + 1;
        const double off = s->analytic[set][e] - s->numeric[set][e];
        if (place >= 0 && isnan(*error)) *error = s->analytic[set][place] - s->numeric[set][place];
        double wanted = e == place ? *error : 0;
        if (nexts && place >= 0 && e == next - (next % columns ? 0 : columns)) wanted = -*error;
        if (!(fabs(off - wanted) <= most)) return false;
    }
    return true;
}

/* The first wrong element of each row, or of two the one that is off in the direction `sign`. False
 * if there are more, or too few rows. */
static bool one_of_each(const gd_evidence *s, int64_t columns, double sign, int64_t *first,
                        bool *nexts)
{
    int64_t rows = 0;
    *nexts = false;
    for (int64_t row = 0; row < s->count / columns; row++) {
        int64_t wrongs = 0;
        first[row] = -1;
        for (int64_t e = row * columns; e < (row + 1) * columns; e++) {
            if (!s->wrong[e]) continue;
            wrongs++;
            if (first[row] < 0 || (analytic(s, e) - numeric(s, e)) * sign > 0) first[row] = e;
        }
        *nexts = *nexts || wrongs == 2;
        rows += wrongs > 0;
        if (wrongs > 2) return false;
    }
    return rows >= 3;
}

/* The same, in at least three rows and for all cotangents. */
static bool one_a_row(const gd_evidence *s, gd_gradcheck_input *out)
{
    const gd_argument *a = s->argument;
    const int64_t columns = a->ndim ? a->shape[a->ndim - 1] : 1;
    int64_t *first = gd_check_allocate(s->c, s->count, sizeof *first);
    double error = 0, other = 0, worst = 0;
    bool nexts, fine = false, same = true;
    if (!complete(s) || columns < 3 || !first) return false;
    for (int sign = 1; sign >= -1 && !fine; sign -= 2) {
        same = true;
        fine = one_of_each(s, columns, sign, first, &nexts);
        for (int set = 0; set < s->sets && fine; set++) {
            fine = off_in_rows(s, set, columns, first, nexts, &error);
            if (set == s->set) worst = error;
            if (set) same = same && fabs(error - other) <= 2 * s->slack[set];
            other = error;
        }
    }
    if (!fine) return false;
    gd_check_say(out, "one element of each row is off, each by ");
    if (same)
        gd_check_say(out, "%.4g", worst);
    else
        gd_check_say(out, "the same");
    if (nexts) gd_check_say(out, ", and the next by the opposite: its value is one place further");
    return true;
}

/* A function that the error may be a multiple of. */
typedef double (*gd_basis)(const gd_evidence *s, int set, int64_t e);

static double basis_one(const gd_evidence *s, int set, int64_t e)
{
    (void)e;
    return s->scale[set];
}

static double basis_gradient(const gd_evidence *s, int set, int64_t e)
{
    return s->numeric[set][e];
}

static double basis_input(const gd_evidence *s, int set, int64_t e)
{
    return s->argument->value[s->at[e]] / s->argument->scale * s->scale[set];
}

/* Whether the error of elements from, from + stride, ... in the sets begin ... end - 1 is a f + b g
 * (g may be NULL), by least squares. */
static bool fits(const gd_evidence *s, int begin, int end, const gd_basis basis[2], int64_t from,
                 int64_t count, int64_t stride)
{
    double ff = 0, fg = 0, gg = 0, fe = 0, ge = 0, a = 0, b = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < (end - begin) * count; i++) {
            const int set = begin + (int)(i / count);
            const int64_t e = from + i % count * stride;
            const double f = basis[0](s, set, e), g = basis[1] ? basis[1](s, set, e) : 0;
            const double error = s->analytic[set][e] - s->numeric[set][e];
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

/* Whether all elements are off by the same number for all cotangents. */
static bool same_constant(const gd_evidence *s)
{
    const double first = s->analytic[0][0] - s->numeric[0][0];
    for (int set = 0; set < s->sets; set++)
        if (!(fabs(s->analytic[set][0] - s->numeric[set][0] - first) <=
              2 * fmax(s->slack[set], s->slack[0])))
            return false;
    return true;
}

static bool pattern(const gd_evidence *s, gd_gradcheck_input *out)
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
    if (!complete(s) || !columns) return false;
    const int64_t rows = a->count / columns;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        const int within = questions[i].within;
        const int64_t lines = within == ALL ? 1 : within == ROWS ? rows : columns;
        const int64_t length = a->count / lines, stride = within == COLUMNS ? columns : 1;
        /* A factor must be the same for each dy; the coefficient of an added term may differ. */
        const int together = questions[i].basis[0] == basis_gradient ? s->sets : 1;
        bool yes = length > (questions[i].basis[1] ? 4 : 2);
        for (int64_t line = 0; line < lines && yes; line++)
            for (int set = 0; set < s->sets && yes; set += together)
                yes = fits(s, set, set + together, questions[i].basis,
                           within == COLUMNS ? line : line * length, length, stride);
        if (!yes) continue;
        gd_check_say(out, "%s", questions[i].words);
        if (within == ALL && !same_constant(s)) gd_check_say(out, ", another for each dy");
        return true;
    }
    return false;
}

/* The largest sum of `value` along an axis. */
static double largest_sum(const gd_evidence *s, const double *value, int axis)
{
    const gd_argument *a = s->argument;
    const int64_t size = a->shape[axis];
    int64_t stride = 1;
    double largest = 0;
    for (int k = axis + 1; k < a->ndim; k++) stride *= a->shape[k];
    for (int64_t e = 0; e < s->count; e++) {
        if (e / stride % size) continue;
        double sum = 0;
        for (int64_t k = 0; k < size; k++) sum += value[e + k * stride];
        largest = fmax(largest, fabs(sum));
    }
    return largest;
}

/* The true gradient sums to 0 along an axis (adding a constant along it does not change the
 * outputs), but this one does not. */
static bool loses_zero_sum(const gd_evidence *s, gd_gradcheck_input *out)
{
    const gd_argument *a = s->argument;
    for (int axis = 0; axis < a->ndim && complete(s); axis++) {
        bool zero = a->shape[axis] >= 3;
        for (int set = 0; set < s->sets && zero; set++)
            zero = largest_sum(s, s->numeric[set], axis) <= s->rtol * s->scale[set];
        double size = s->scale[s->set];
        for (int64_t e = 0; e < s->count; e++) size = fmax(size, fabs(analytic(s, e)));
        if (!zero || largest_sum(s, s->analytic[s->set], axis) < 50 * s->rtol * size) continue;
        gd_check_say(out, "%sthe true gradient sums to 0 along axis %d, this one does not",
                     out->finding[0] ? ": " : "", axis);
        return true;
    }
    return false;
}

/* ---- All ---------------------------------------------------------------------------------- */

gd_status gd_check_diagnose(gd_evidence *s, gd_gradcheck_input *out)
{
    static bool (*const questions[])(const gd_evidence *, gd_gradcheck_input *) = {
        single, wrong_mask, constant_factor, permuted, one_a_row};
    gd_status status = not_finite(s, out);
    if (status || out->finding[0]) return status;
    /* One element shows nothing of the others, and those that could not be judged may be wrong. */
    if (s->c->options.only_element && s->argument->count > 1) return GD_OK;
    status = gd_check_evidence(s);
    if (status || !s->sure) return status;
    if (all_zero(s, out) || same_factor(s, out) || s->unknown) return GD_OK;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        if (questions[i](s, out)) return GD_OK;
    status = of_another(s, out);
    if (status || out->finding[0]) return status;

    if (all_should_be_zero(s, out)) return GD_OK;
    gd_gradcheck_input more = {.finding = ""};
    pattern(s, out);
    loses_zero_sum(s, out);
    status = gd_check_jacobian(s, &more);
    if (more.finding[0]) gd_check_say(out, "%s%s", out->finding[0] ? ": " : "", more.finding);
    const gd_text place = where(s); /* ", all in ..." */
    if (!out->finding[0] && *place.text)
        gd_check_say(out, "the wrong elements are%s", place.text + 1);
    else
        gd_check_say(out, "%s", place.text);
    return status;
}
