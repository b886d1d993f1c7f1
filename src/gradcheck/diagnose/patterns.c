/* patterns.c - the hypotheses on what the wrong elements have in common. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"

/* That of the set with the worst element. */
static double analytic(const gd_evidence *s, int64_t e)
{
    return s->of[s->set].analytic[e];
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

static int64_t columns_of(const gd_evidence *s)
{
    return s->argument->spec.ndim ? s->argument->spec.shape[s->argument->spec.ndim - 1] : 1;
}

static int64_t index_of(const gd_evidence *s, int64_t e, int axis)
{
    return gd_check_index(&s->argument->spec, s->at[e], axis);
}

/* Whether an element's gradient is `factor` times the true one with the cotangents of a set. */
static bool scaled(const gd_evidence *s, int set, int64_t e, double factor)
{
    const gd_columns *of = &s->of[set];
    return fabs(of->analytic[e] - factor * of->numeric[e]) <= of->slack * fmax(1, fabs(factor));
}

/* Whether it is so for all cotangents. */
static bool is_multiple(const gd_evidence *s, int64_t e, double factor)
{
    for (int set = 0; set < s->sets; set++)
        if (!scaled(s, set, e, factor)) return false;
    return true;
}

/* Whether an element's gradient is exactly 0 for all cotangents. */
static bool is_zero(const gd_evidence *s, int64_t e)
{
    for (int set = 0; set < s->sets; set++)
        if (s->of[set].analytic[e] != 0) return false;
    return true;
}

/* Whether an element's true gradient is 0, within the tolerance, for all cotangents. */
static bool should_be_zero(const gd_evidence *s, int64_t e)
{
    for (int set = 0; set < s->sets; set++)
        if (!(fabs(s->of[set].numeric[e]) <= s->rtol * s->of[set].scale)) return false;
    return true;
}

/* With s->which the true gradient is. */
bool gd_holds_all_zero(gd_evidence *s)
{
    for (int set = 0; set < s->sets; set++)
        for (int64_t e = 0; e < s->count; e++)
            if ((s->which ? s->of[set].numeric : s->of[set].analytic)[e] != 0) return false;
    return true;
}

/* ---- Where -------------------------------------------------------------------------------- */

/* " in row 3": all wrong elements have the same index along some axis, and other indices were
 * examined too. */
gd_text gd_check_where(const gd_evidence *s)
{
    const gd_spec *x = &s->argument->spec;
    gd_text text = {""};
    for (int axis = 0; axis < x->ndim; axis++) {
        int64_t index = -1, others = 0;
        bool one = true;
        for (int64_t e = 0; e < s->count && one; e++) {
            if (!s->wrong[e]) continue;
            if (index < 0) index = index_of(s, e, axis);
            one = index_of(s, e, axis) == index;
        }
        for (int64_t e = 0; e < s->count && one; e++) others += index_of(s, e, axis) != index;
        if (!one || !others || index < 0 || x->shape[axis] < 2) continue;
        const bool last = index == x->shape[axis] - 1, middle = axis > 0 && axis < x->ndim - 1;
        const char *kind = x->ndim == 1 || middle ? "at" : axis ? "in column" : "in row";
        gd_check_write(&text, ", all %s %lld", kind, (long long)index);
        if (middle) gd_check_write(&text, " along axis %d", axis);
        if (last) gd_check_write(&text, " (the last)");
        return text;
    }
    return text;
}

/* The element that is off with a set's cotangents, -1 if none is; or -2 for several, also if all
 * but one are within the tolerance. */
static int64_t only_one(const gd_evidence *s, const gd_columns *of)
{
    int64_t one = -1;
    for (int64_t e = 0; e < s->count; e++) {
        if (s->skip[e] || fabs(of->analytic[e] - of->numeric[e]) <= 2 * of->slack) continue;
        if (one >= 0) return -2;
        one = e;
    }
    return one;
}

/* Whether with each dy another element is off, by the same factor: the backward looks for it. The
 * first one must be seen to be right with another dy: elements that are always off, and small, are
 * found with one dy and hidden by the tolerance with another. */
static bool one_for_each_dy(const gd_evidence *s, double factor)
{
    int64_t first = -1;
    bool another = false;
    for (int set = 0; set < s->sets; set++) {
        const gd_columns *of = &s->of[set];
        const int64_t one = only_one(s, of);
        if (one == -2 || (one < 0 && set < s->measured)) return false;
        if (one < 0) continue;
        if (!scaled(s, set, one, factor)) return false;
        if (first < 0) first = one;
        another =
            another || (one != first && fabs((factor - 1) * of->numeric[first]) > 4 * of->slack);
    }
    return another;
}

bool gd_holds_single(gd_evidence *s)
{
    const double factor = s->out->analytic / s->out->numeric;
    const bool known = isfinite(factor) && fabs(factor - 1) < 10, one = count_wrong(s) == 1;
    bool multiple = known;
    if (s->count < 3 || s->others ||
        (one ? s->out->wrong != 1 : !known || !one_for_each_dy(s, factor)))
        return false;
    for (int set = 0; set < s->sets && one; set++) {
        const int64_t e = only_one(s, &s->of[set]);
        if (e == -2 || (e >= 0 && !s->wrong[e])) return false;
        multiple = multiple && (e < 0 || is_multiple(s, e, factor));
    }
    if (multiple) gd_check_add(s, ", by %.3g%%", 100 * (factor - 1));
    if (!one) gd_check_add(s, ", another one with each dy");
    return true;
}

/* ---- A factor ----------------------------------------------------------------------------- */

/* The factor of the elements that are not skipped, or of the wrong ones: what is written is as near
 * to it as the cotangents show that show most. */
static void say_factor(gd_evidence *s, double factor, bool of_wrong)
{
    double sharpest = 0;
    for (int64_t n = 0; n < s->sets * s->count; n++) {
        const gd_columns *of = &s->of[n / s->count];
        const int64_t e = n % s->count;
        if (of_wrong ? s->wrong[e] : !s->skip[e])
            sharpest = fmax(sharpest, fabs(of->numeric[e]) / of->slack);
    }
    const double tolerance = fmax(1, fabs(factor)) / sharpest;
    if (fabs(factor + 1) <= tolerance)
        gd_check_add(s, "the sign is flipped");
    else
        gd_check_add(s, "a constant factor %s",
                     gd_check_factor(s->argument, factor, tolerance).text);
}

/* What the error of an element may be a multiple of: GD_ONE, GD_GRADIENT or GD_INPUT. */
static double basis(const gd_evidence *s, int which, int set, int64_t e)
{
    const gd_argument *a = s->argument;
    if (which & GD_ONE) return s->of[set].scale;
    if (which & GD_GRADIENT) return s->of[set].numeric[e];
    return a->value[s->at[e]] / a->scale * s->of[set].scale;
}

bool gd_check_fits(const gd_evidence *s, gd_groups *groups)
{
    const bool both = (groups->terms & GD_ONE) && (groups->terms & GD_INPUT);
    const bool factor = groups->terms & GD_GRADIENT;
    groups->fit = gd_check_allocate(s->c, groups->count, sizeof *groups->fit);
    for (int pass = 0; pass < 2 && groups->fit; pass++) {
        for (int64_t n = groups->first * s->count; n < groups->end * s->count; n++) {
            const int set = (int)(n / s->count);
            const int64_t e = n % s->count, group = groups->of(s, groups, set, e);
            if (group < 0) continue;
            gd_fit *t = &groups->fit[group];
            const double f = basis(s, groups->terms, set, e);
            const double g = both ? basis(s, GD_INPUT, set, e) : 0;
            const double error = s->of[set].analytic[e] - s->of[set].numeric[e];
            const double slack = s->of[set].slack * (factor ? fmax(1, fabs(1 + t->a)) : 1);
            if (!pass)
                gd_check_add_point(t, f, g, error);
            else if (!(fabs(error - t->a * f - t->b * g) <= slack))
                return false;
        }
        for (int64_t k = 0; k < groups->count && !pass; k++) gd_check_solve(&groups->fit[k], both);
    }
    return groups->fit != NULL;
}

static int64_t none_at_a_kink(const gd_evidence *s, const gd_groups *groups, int set, int64_t e)
{
    (void)groups, (void)set;
    return s->skip[e] ? -1 : 0;
}

static int64_t wrong_alone(const gd_evidence *s, const gd_groups *groups, int set, int64_t e)
{
    (void)groups, (void)set;
    return s->wrong[e] ? 0 : -1;
}

/* Whether these elements share a factor, which they show. */
static bool share_factor(const gd_evidence *s, bool of_wrong, double *factor)
{
    gd_groups all = {.terms = GD_GRADIENT,
                     .end = s->sets,
                     .of = of_wrong ? wrong_alone : none_at_a_kink,
                     .count = 1};
    if (!gd_check_fits(s, &all) || all.fit->ff == 0) return false;
    *factor = 1 + all.fit->a;
    return true;
}

/* All elements share a factor, also those that are within the tolerance, and for two it
 * is not 1. */
bool gd_holds_same_factor(gd_evidence *s)
{
    double factor;
    int64_t shown = 0;
    for (int64_t e = 0; e < s->count; e++) shown += !s->skip[e] && !is_multiple(s, e, 1);
    if ((shown < 2 && s->count > 1) || !share_factor(s, false, &factor)) return false;
    say_factor(s, factor, false);
    return true;
}

/* The wrong elements share a factor, which is 0 if s->which is set. */
bool gd_holds_some_factor(gd_evidence *s)
{
    const int64_t wrongs = count_wrong(s);
    const gd_text where = gd_check_where(s);
    bool zeros = true;
    double factor;
    if (wrongs < 2 || !share_factor(s, true, &factor)) return false;
    for (int64_t e = 0; e < s->count; e++) zeros = zeros && (!s->wrong[e] || is_zero(s, e));
    if (zeros != s->which) return false;
    if (!zeros) say_factor(s, factor, true);
    if (zeros || *where.text)
        gd_check_add(s, "%s", where.text);
    else
        gd_check_add(s, ", at %lld of %lld elements", (long long)wrongs, (long long)s->count);
    return true;
}

/* ---- Gradients that should be zero -------------------------------------------------------- */

/* Each wrong element has a gradient that should be 0, or (with s->which) is 0 and should not be,
 * and there is at least one of the first kind: a wrong mask. */
bool gd_holds_wrong_mask(gd_evidence *s)
{
    int64_t extra = 0, missing = 0;
    for (int64_t e = 0; e < s->count; e++) {
        if (!s->wrong[e]) continue;
        if (should_be_zero(s, e))
            extra++;
        else if (is_zero(s, e))
            missing++;
    }
    if (!extra || extra + missing < count_wrong(s) || extra == s->count) return false;
    if ((missing > 0) != s->which) return false;
    if (s->which)
        gd_check_add(s, "%lld where there should be none, %lld missing", (long long)missing,
                     (long long)extra);
    else
        gd_check_add(s, "%s", gd_check_where(s).text);
    return true;
}

/* ---- Right values in wrong places --------------------------------------------------------- */

/* Whether element `to` of the gradient is element `from` of the true one, for all cotangents. */
static bool moved(const gd_evidence *s, int64_t from, int64_t to)
{
    for (const gd_columns *of = s->of; of < s->of + s->sets; of++)
        if (!(fabs(of->analytic[to] - of->numeric[from]) <= s->rtol * of->scale)) return false;
    return true;
}

/* Whether each element is found `by` elements further or, for 0, where it is in the transposed
 * matrix: that was taken for its transpose in memory. */
static bool all_moved(const gd_evidence *s, int64_t by)
{
    const int64_t n = s->count, columns = columns_of(s), rows = n / columns;
    for (int64_t e = 0; e < n; e++)
        if (!moved(s, e, by ? (e + by) % n : e % columns * rows + e / columns)) return false;
    return true;
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

bool gd_holds_permuted(gd_evidence *s)
{
    const int64_t n = s->count, columns = columns_of(s);
    const struct {
        int64_t by;
        const char *how;
    } moves[] = {{0, ": transposed"},
                 {1, ": moved by one element"},
                 {n - 1, ": moved by one element"},
                 {columns, ": moved by one row"},
                 {n - columns, ": moved by one row"}};
    /* A difference below the tolerance does not count as moved. */
    if (!complete(s) || n < 3 || all_moved(s, n) || !is_permutation(s)) return false;
    for (size_t i = 0; i < sizeof moves / sizeof *moves && !*s->detail; i++)
        if (all_moved(s, moves[i].by)) gd_check_add(s, "%s", moves[i].how);
    return true;
}

/* Whether the analytic gradient is what the function's slopes along the same elements of an
 * input are. */
static bool is_slope(const gd_evidence *s, int input)
{
    bool same = true;
    for (int64_t e = 0; e < s->count && same; e++) {
        if (s->skip[e]) continue;
        gd_check_probe_slopes(s, input, s->at[e], s->c->options.step, s->slopes);
        for (int set = 0; set < s->sets; set++)
            same = same &&
                   fabs(s->of[set].analytic[e] - s->slopes[set].central) <= 2 * s->of[set].slack;
    }
    return same && !gd_check_failed(s->c);
}

/* The analytic gradient is the numeric gradient of another input with the same number of
 * elements. */
bool gd_holds_of_another(gd_evidence *s)
{
    for (int i = 0; i < s->c->inputs && complete(s); i++) {
        const gd_argument *a = &s->c->input[i];
        if (i == s->input || !a->wanted || a->count != s->count || !is_slope(s, i)) continue;
        gd_check_add(s, "%s", a->name);
        return true;
    }
    return false;
}

/* It is the numeric gradient where another input has the opposite sign, as y - z is for
 * x y + x z. */
bool gd_holds_of_negative(gd_evidence *s)
{
    for (int i = 0; i < s->c->inputs; i++) {
        const gd_argument *a = &s->c->input[i];
        double *opposite = gd_check_numbers(s->c, a->count);
        if (i == s->input || !a->given || a->again || !gd_dtype_is_real(a->spec.dtype)) continue;
        if (!opposite) return false;
        for (int64_t k = 0; k < a->count; k++) opposite[k] = -a->value[k];
        gd_tensor_write_f64(a->measured, opposite, a->count);
        const bool is = is_slope(s, s->input);
        gd_tensor_write_f64(a->measured, a->value, a->count);
        if (!is) continue;
        gd_check_add(s, "-%s: a term with %s", a->name, a->name);
        return true;
    }
    return false;
}

/* ---- Patterns along rows ------------------------------------------------------------------ */

/* In each row of a set one element is off by the same error, and perhaps the next element by the
 * opposite error; all other elements are right. `first` [rows] are the former. */
static bool off_in_rows(const gd_evidence *s, const gd_columns *of, int64_t columns,
                        const int64_t *first, bool nexts, double *error)
{
    *error = NAN;
    for (int64_t e = 0; e < s->count; e++) {
        const int64_t at = first[e / columns], next = at + 1;
        if (at >= 0 && isnan(*error)) *error = of->analytic[at] - of->numeric[at];
        double wanted = e == at ? *error : 0;
        if (nexts && at >= 0 && e == next - (next % columns ? 0 : columns)) wanted = -*error;
        if (!(fabs(of->analytic[e] - of->numeric[e] - wanted) <= 2 * of->slack)) return false;
    }
    return true;
}

/* The same, in at least three rows and for all cotangents. */
bool gd_holds_one_a_row(gd_evidence *s)
{
    const int64_t columns = columns_of(s), rows = complete(s) ? s->count / columns : 0;
    int64_t *first = gd_check_allocate(s->c, rows, sizeof *first), some = 0;
    double error = 0, other = 0, worst = 0;
    bool nexts = false, same = true;
    for (int64_t row = 0; row < rows && first; row++) {
        int64_t wrongs = 0;
        first[row] = -1;
        for (int64_t e = row * columns; e < (row + 1) * columns; e++) {
            const int64_t before = e - 1 + (e % columns ? 0 : columns);
            wrongs += s->wrong[e];
            if (s->wrong[e] && !s->wrong[before]) first[row] = e;
        }
        nexts = nexts || wrongs == 2;
        some += wrongs > 0;
        if (wrongs > 2) return false;
    }
    if (some < 3 || columns < 3) return false;
    for (int set = 0; set < s->sets; set++) {
        if (!off_in_rows(s, &s->of[set], columns, first, nexts, &error)) return false;
        if (set == s->set) worst = error;
        if (set) same = same && fabs(error - other) <= 2 * s->of[set].slack;
        other = error;
    }
    gd_check_add(s, same ? "%.4g" : "the same", worst);
    if (nexts) gd_check_add(s, ", and the next by the opposite: its value is one place further");
    return true;
}

/* Whether all elements are off by the same number for all cotangents. */
static bool same_constant(const gd_evidence *s)
{
    const double first = s->of[0].analytic[0] - s->of[0].numeric[0];
    for (int set = 0; set < s->sets; set++)
        if (!(fabs(s->of[set].analytic[0] - s->of[set].numeric[0] - first) <=
              2 * fmax(s->of[set].slack, s->of[0].slack)))
            return false;
    return true;
}

static int64_t line_of(const gd_evidence *s, const gd_groups *groups, int set, int64_t e)
{
    const int64_t columns = columns_of(s), rows = s->count / columns;
    /* A factor must be the same for each dy; the coefficient of an added term may differ. */
    const int64_t with = groups->terms & GD_GRADIENT ? 0 : set;
    if (groups->terms & GD_ROWS) return with * rows + e / columns;
    return groups->terms & GD_COLUMNS ? with * columns + e % columns : with;
}

bool gd_holds_pattern(gd_evidence *s)
{
    const int which = s->which;
    const int64_t count = s->argument->count, columns = columns_of(s);
    if (!complete(s) || !columns) return false;
    const int64_t lines = which & GD_ROWS ? count / columns : which & GD_COLUMNS ? columns : 1;
    gd_groups groups = {.terms = which, .end = s->sets, .of = line_of, .count = s->sets * lines};
    const bool both = (which & GD_ONE) && (which & GD_INPUT);
    if (count / lines <= (both ? 4 : 2) || !gd_check_fits(s, &groups)) return false;
    if (which == GD_ONE && !same_constant(s)) gd_check_add(s, ", another for each dy");
    return true;
}

/* The largest sum of `value` along an axis. */
static double largest_sum(const gd_evidence *s, const double *value, int axis)
{
    const gd_spec *x = &s->argument->spec;
    const int64_t size = x->shape[axis];
    int64_t stride = 1;
    double largest = 0;
    for (int k = axis + 1; k < x->ndim; k++) stride *= x->shape[k];
    for (int64_t e = 0; e < s->count; e++) {
        if (e / stride % size) continue;
        double sum = 0;
        for (int64_t k = 0; k < size; k++) sum += value[e + k * stride];
        largest = fmax(largest, fabs(sum));
    }
    return largest;
}

/* Adding a constant along the axis does not change the outputs. */
bool gd_holds_lost_sum(gd_evidence *s)
{
    const gd_spec *x = &s->argument->spec;
    for (int axis = 0; axis < x->ndim && complete(s); axis++) {
        bool zero = x->shape[axis] >= 3;
        for (int set = 0; set < s->sets && zero; set++)
            zero = largest_sum(s, s->of[set].numeric, axis) <= s->rtol * s->of[set].scale;
        double size = s->of[s->set].scale;
        for (int64_t e = 0; e < s->count; e++) size = fmax(size, fabs(analytic(s, e)));
        const double *ours = s->of[s->set].analytic;
        if (!zero || largest_sum(s, ours, axis) < 50 * s->rtol * size) continue;
        gd_check_add(s, "%d", axis);
        return true;
    }
    return false;
}
