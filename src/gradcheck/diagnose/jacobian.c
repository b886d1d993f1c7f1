/* jacobian.c - the hypotheses on which dy reaches which gradient, and with what factor.
 *
 * With one-hot probes (evidence.c) the evidence holds the backward's Jacobian and the true one.
 * Comparing them entry by entry shows what a sum over dy cannot: a dy that is left out, a dy taken
 * from the wrong element, a factor that depends on where dy comes from. Absence of a dependence
 * means exactly 0. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"

static double analytic(const gd_evidence *s, int64_t r, int64_t k)
{
    return s->of[s->measured + k].analytic[s->row[r]];
}

static double numeric(const gd_evidence *s, int64_t r, int64_t k)
{
    return s->of[s->measured + k].numeric[s->row[r]];
}

/* The flat index of a row. */
static int64_t at(const gd_evidence *s, int64_t r)
{
    return s->at[s->row[r]];
}

static bool near(const gd_evidence *s, double a, double b)
{
    return fabs(a - b) <= s->tolerance;
}

/* ---- Linearity ---------------------------------------------------------------------------- */

/* Whether the gradients are the product of the analytic Jacobian and dy, for each set of the check,
 * within the rounding of a sum of such terms. *same: whether they do not depend on dy at all. */
static bool adds_up(const gd_evidence *s, bool *same)
{
    double most[2] = {0, 0}; /* of the sums' terms, and of what is missing */
    *same = true;
    for (int set = 0; set < s->measured; set++) {
        const gd_columns *of = &s->of[set];
        for (int64_t r = 0; r < s->rows; r++) {
            const double g = of->analytic[s->row[r]], slack = s->rtol * of->scale;
            double sum = 0, terms = 0;
            for (int64_t k = 0; k < s->columns; k++) {
                const double term = analytic(s, r, k) * of->cotangent[0][k];
                sum += term;
                terms += fabs(term);
                *same = *same && fabs(analytic(s, r, k) - g) <= slack;
            }
            most[0] = fmax(most[0], terms);
            most[1] = fmax(most[1], fabs(sum - g) - slack);
        }
    }
    return most[1] <= 10 * s->rtol * most[0];
}

/* Whether twice the dy, and the opposite one, give twice the gradient and the opposite one. These
 * are exact for every formula that is linear in dy, however it is rounded. */
static bool scales(const gd_evidence *s)
{
    const gd_columns *of = &s->of[s->set];
    double *gradient = gd_check_gradient(s->c), *u = gd_check_numbers(s->c, s->columns);
    bool yes = true;
    for (int factor = 2; factor >= -1 && u; factor -= 3) {
        for (int64_t k = 0; k < s->columns; k++) u[k] = factor * of->cotangent[0][k];
        gd_check_backward(s->c, &u, gradient);
        for (int64_t r = 0; r < s->rows && !gd_check_failed(s->c); r++)
            yes = yes && fabs(gradient[s->argument->first + at(s, r)] -
                              factor * of->analytic[s->row[r]]) <= s->rtol * of->scale;
    }
    return yes;
}

/* ---- Which entries are wrong -------------------------------------------------------------- */

static bool is_missing(const gd_evidence *s, int64_t r, int64_t k)
{
    return analytic(s, r, k) == 0 && fabs(numeric(s, r, k)) > s->tolerance;
}

/* Not if the output is so large that the step would not move it either way. */
static bool is_extra(const gd_evidence *s, int64_t r, int64_t k)
{
    const double step = s->c->options.step * s->argument->scale, a = fabs(analytic(s, r, k));
    const double unit = gd_check_accuracy[s->y->measured].rounding * fabs(s->y->base[k]);
    return numeric(s, r, k) == 0 && a > s->tolerance && a * step > 8 * unit;
}

void gd_check_entries(gd_evidence *s)
{
    const gd_result *y = s->y = &s->c->output[0];
    s->row = gd_check_allocate(s->c, s->count, sizeof *s->row);
    if (!s->row || !s->one_hot) return;
    s->columns = y->count;
    s->alike = gd_check_same_shape(&s->argument->spec, &y->spec);
    for (int64_t e = 0; e < s->count; e++)
        if (!s->skip[e]) s->row[s->rows++] = e;
    s->tolerance = s->rtol * s->of[s->measured].scale;
    if (!(s->tolerance > 0)) return;
    s->linear = adds_up(s, &s->same);
    s->linear = scales(s) && s->linear;
    for (int64_t n = s->rows * s->columns - 1; n >= 0 && s->linear; n--) {
        const int64_t r = n / s->columns, k = n % s->columns;
        if (is_missing(s, r, k))
            s->missing++, s->missing_at = n;
        else if (is_extra(s, r, k))
            s->extra++, s->extra_at = n;
        else
            s->off += !near(s, analytic(s, r, k), numeric(s, r, k));
    }
}

/* With s->which it is the same for every dy. */
bool gd_holds_not_linear(gd_evidence *s)
{
    return !s->linear && (s->same || !s->which);
}

/* ---- Which dy ----------------------------------------------------------------------------- */

/* "x[0, 1] uses dy[2]": the element of the gradient of an entry, and its dy. */
static void say_use(gd_evidence *s, int64_t entry, const char *verb)
{
    gd_check_add(s, "%s%s %s dy%s", s->argument->name,
                 gd_check_indices(&s->argument->spec, at(s, entry / s->columns)).text, verb,
                 gd_check_indices(&s->y->spec, entry % s->columns).text);
}

/* The columns marked with `mark`, as "dy[3, :]". False if they are not a box. */
static bool box(gd_evidence *s, const bool *marked, bool mark)
{
    const gd_spec *y = &s->y->spec;
    int64_t count = 0, inside = 1, first = -1;
    for (int64_t k = s->columns - 1; k >= 0; k--)
        if (marked[k] == mark) first = k, count++;
    gd_check_add(s, "dy[");
    for (int axis = 0; axis < y->ndim && first >= 0; axis++) {
        const int64_t index = gd_check_index(y, first, axis);
        bool one = true;
        for (int64_t k = 0; k < s->columns; k++)
            if (marked[k] == mark) one = one && gd_check_index(y, k, axis) == index;
        if (!one) inside *= y->shape[axis];
        gd_check_add(s, axis ? ", " : "");
        if (one)
            gd_check_add(s, "%lld", (long long)index);
        else
            gd_check_add(s, ":");
    }
    gd_check_add(s, "]");
    return first >= 0 && count == inside;
}

/* All missing entries are in columns of dy that no element uses: these, or with s->which the
 * others, are a box. */
bool gd_holds_left_out(gd_evidence *s)
{
    bool *taken = gd_check_allocate(s->c, s->columns, sizeof *taken);
    if (!taken || s->off || !s->missing || s->extra) return false;
    for (int64_t k = 0; k < s->columns; k++) {
        bool needed = false, missing = false;
        for (int64_t r = 0; r < s->rows; r++) {
            needed = needed || numeric(s, r, k) != 0;
            missing = missing || is_missing(s, r, k);
        }
        taken[k] = s->used[k] || !needed;
        if (taken[k] && missing) return false;
    }
    return box(s, taken, s->which);
}

/* An element uses only the last (or the first) of several dy that it should sum. */
bool gd_holds_overwritten(gd_evidence *s)
{
    bool last = !s->off && s->missing && !s->extra, first = last;
    int64_t counts = 0; /* how many, for the first such element */
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t low[2] = {s->columns, s->columns}, high[2] = {-1, -1}; /* kept, missing */
        int64_t count[2] = {0, 0};
        for (int64_t k = 0; k < s->columns; k++) {
            int kind = is_missing(s, r, k);
            if (!kind && analytic(s, r, k) == 0) continue;
            if (k < low[kind]) low[kind] = k;
            high[kind] = k;
            count[kind]++;
        }
        if (!count[1]) continue;
        if (r == s->missing_at / s->columns) counts = count[0];
        last = last && count[0] && low[0] > high[1];
        first = first && count[0] && high[0] < low[1];
    }
    if (!last && !first) return false;
    gd_check_add(s, "%s%s only the %s ", s->argument->name,
                 gd_check_indices(&s->argument->spec, at(s, s->missing_at / s->columns)).text,
                 last ? "last" : "first");
    if (counts > 1) gd_check_add(s, "%lld count", (long long)counts);
    if (counts == 1) gd_check_add(s, "counts: overwritten, not added");
    return true;
}

/* Whether an element and a dy differ at most along the axis. */
static bool on_a_line(const gd_evidence *s, int64_t r, int64_t k, int axis)
{
    const gd_spec *y = &s->y->spec;
    for (int other = 0; other < y->ndim; other++)
        if (other != axis && gd_check_index(y, at(s, r), other) != gd_check_index(y, k, other))
            return false;
    return true;
}

/* The only axis along which element and dy of each entry of a kind differ; -1: there is none. */
static int axis_of(const gd_evidence *s, bool (*kind)(const gd_evidence *, int64_t, int64_t))
{
    for (int axis = 0; axis < s->y->spec.ndim && s->alike; axis++) {
        bool all = true;
        for (int64_t r = 0; r < s->rows && all; r++)
            for (int64_t k = 0; k < s->columns && all; k++)
                all = !kind(s, r, k) || on_a_line(s, r, k, axis);
        if (all) return axis;
    }
    return -1;
}

/* Each element uses only its own dy, and should use others, too. */
bool gd_holds_own_alone(gd_evidence *s)
{
    if (!s->alike || s->strays || !s->missing || s->extra) return false;
    for (int64_t r = 0; r < s->rows; r++)
        if (is_missing(s, r, at(s, r))) return false;
    const int axis = axis_of(s, is_missing);
    if (axis >= 0) gd_check_add(s, " along axis %d", axis);
    return true;
}

/* Whether each element uses all dy along an axis and no others, but should use those
 * along another. */
bool gd_holds_another_axis(gd_evidence *s)
{
    if (!s->missing || !s->extra) return false;
    const int from = axis_of(s, is_extra), to = axis_of(s, is_missing);
    if (from < 0 || to < 0 || from == to) return false;
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t k = 0; k < s->columns; k++)
            if ((analytic(s, r, k) != 0) != on_a_line(s, r, k, from) ||
                (numeric(s, r, k) != 0) != on_a_line(s, r, k, to))
                return false;
    gd_check_add(s, "%d instead of axis %d", from, to);
    return true;
}

bool gd_holds_wrong_dy(gd_evidence *s)
{
    if (s->missing) say_use(s, s->missing_at, "does not use");
    if (s->missing && s->extra) gd_check_add(s, ", but ");
    if (s->extra) say_use(s, s->extra_at, "uses");
    if (s->extra && !s->missing) gd_check_add(s, ", though that y does not depend on it");
    return s->missing || s->extra;
}

bool gd_holds_transposed(gd_evidence *s)
{
    if (s->rows != s->columns || s->rows != s->argument->count) return false;
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t k = 0; k < s->columns; k++)
            if (!near(s, analytic(s, r, k), numeric(s, k, r))) return false;
    return true;
}

/* ---- Which factor ------------------------------------------------------------------------- */

static void add_symbol(gd_points *p, const char *name, double *value)
{
    if (p->symbols == GD_SYMBOLS || !value) return;
    p->name[p->symbols] = name;
    p->value[p->symbols++] = value;
}

/* The values of an input, broadcast over the elements `where` of a shape; NULL if that does not
 * allow it. */
static double *over(const gd_evidence *s, const gd_spec *shape, const gd_argument *a, int64_t count,
                    const int64_t *where)
{
    const gd_spec *x = &a->spec;
    const int more = shape->ndim - x->ndim;
    if (!a->given || more < 0 || !gd_dtype_is_real(x->dtype)) return NULL;
    for (int axis = 0; axis < x->ndim; axis++)
        if (x->shape[axis] != 1 && x->shape[axis] != shape->shape[more + axis]) return NULL;
    double *value = gd_check_numbers(s->c, count);
    for (int64_t i = 0; i < count && value; i++) {
        int64_t from = 0;
        for (int axis = 0; axis < x->ndim; axis++) {
            const int64_t index = gd_check_index(shape, where[i], more + axis);
            from = from * x->shape[axis] + (x->shape[axis] == 1 ? 0 : index);
        }
        value[i] = a->value[from];
    }
    return value;
}

/* The symbols at the elements `where` of a shape: the inputs that broadcast to it, and the output's
 * elements `column`. */
static gd_points points_over(const gd_evidence *s, const gd_spec *shape, int64_t count,
                             const int64_t *where, const int64_t *column)
{
    gd_points p = {.count = count};
    double *y = gd_check_numbers(s->c, count);
    const char *name = "y";
    for (int64_t i = 0; i < count && y; i++) y[i] = s->y->base[column[i]];
    for (int i = 0; i < s->c->inputs; i++) {
        const gd_argument *a = &s->c->input[i];
        add_symbol(&p, a->name, over(s, shape, a, count, where));
        if (!strcmp(a->name, name)) name = "output";
    }
    add_symbol(&p, name, y);
    return p;
}

enum { EACH = -2, ALL = -1 };

/* Which dy an entry has or, by row, which element it is of; its index along the axis, if there is
 * one. `others`: only entries with the dy of other elements count. */
static int64_t group_of(const gd_evidence *s, const gd_groups *f, int set, int64_t e)
{
    const int64_t dy = set - s->measured, i = f->by_row ? s->at[e] : dy;
    if (s->skip[e] || (f->others && dy == s->at[e])) return -1;
    return f->axis >= 0 ? gd_check_index(&s->y->spec, i, f->axis) : f->axis == ALL ? 0 : i;
}

/* Whether each entry is the true one times a factor that depends only on its group, of which there
 * are several accurate ones. */
static bool find_factors(const gd_evidence *s, gd_groups *f, int axis)
{
    const int64_t count = axis == EACH ? s->columns : axis == ALL ? 1 : s->y->spec.shape[axis];
    f->terms = GD_GRADIENT;
    f->first = s->measured, f->end = s->sets;
    f->of = group_of;
    f->axis = axis;
    f->count = count;
    if ((axis != EACH && f->accurate < 3 * count) || !gd_check_fits(s, f)) return false;
    for (int64_t i = 0; i < count && axis == EACH; i++)
        f->accurate += sqrt(f->fit[i].ff) > 100 * s->tolerance;
    return f->accurate > 0;
}

/* Describes the factors, if they have a simple form. */
static bool say_factors(gd_evidence *s, gd_groups f)
{
    double *target = gd_check_numbers(s->c, 3 * s->columns);
    int64_t count = 0, best = 0; /* the factor that is known most accurately */
    int64_t *known = gd_check_allocate(s->c, s->columns, sizeof *known);
    gd_text text;
    if (!target || !known) return false;
    double *weight = target + s->columns, *exp_y = weight + s->columns;
    for (int64_t i = 0; i < s->columns; i++) {
        if (f.fit[i].ff == 0) continue;
        weight[count] = sqrt(f.fit[i].ff);
        target[count] = weight[count] * (1 + f.fit[i].a);
        exp_y[count] = exp(s->y->base[i]);
        if (weight[count] > weight[best]) best = count;
        known[count++] = i;
    }
    const double factor = target[best] / weight[best], tolerance = s->tolerance / weight[best];
    if (find_factors(s, &f, ALL)) {
        if (fabs(factor - 1) <= tolerance) return false;
        if (fabs(factor + 1) <= tolerance)
            gd_check_add(s, "the wrong sign");
        else
            gd_check_add(s, "an extra factor %s",
                         gd_check_factor(s->argument, factor, tolerance).text);
        return true;
    }
    gd_points p = points_over(s, &s->y->spec, count, known, known);
    add_symbol(&p, "exp(y)", exp_y);
    p.weight = weight;
    if (gd_check_formula(s->c, &p, target, s->tolerance, 1, "", &text)) {
        gd_check_add(s, "an extra factor %s", text.text);
        return true;
    }
    for (int axis = 0; axis < s->y->spec.ndim && !f.by_row; axis++) {
        if (!find_factors(s, &f, axis)) continue;
        gd_check_add(s, "an extra factor for each index along its axis %d", axis);
        return true;
    }
    return false;
}

bool gd_holds_factors(gd_evidence *s)
{
    for (int by_row = 0; by_row <= s->alike && s->which <= s->alike; by_row++) {
        gd_groups f = {.others = s->which, .by_row = by_row};
        if (find_factors(s, &f, EACH) && say_factors(s, f)) return true;
    }
    return false;
}

/* Every dy is used without the factor that it should have. */
bool gd_holds_no_factor(gd_evidence *s)
{
    bool factor = false;
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t k = 0; k < s->columns; k++) {
            const double a = analytic(s, r, k), n = numeric(s, r, k);
            if (n == 0 && a == 0) continue;
            if (n == 0 || !(fabs(a - 1) <= s->rtol)) return false;
            factor = factor || !near(s, fabs(n), 1);
        }
    }
    return factor;
}

/* ---- As a formula ------------------------------------------------------------------------- */

/* The entries that are not 0, where each dy contributes to one element only or, by row, where each
 * element has one dy only. */
typedef struct gd_entries {
    bool by_row;
    int64_t count;
    int64_t *where, *column; /* the elements of y, or of the gradient, and the dy */
    double *ours, *right;
} gd_entries;

static bool find_entries(const gd_evidence *s, gd_entries *f)
{
    const int64_t outer = f->by_row ? s->rows : s->columns, inner = s->rows + s->columns - outer;
    f->where = gd_check_allocate(s->c, 2 * outer, sizeof *f->where);
    f->ours = gd_check_numbers(s->c, 2 * outer);
    if (!f->where || !f->ours) return false;
    f->column = f->where + outer, f->right = f->ours + outer;
    for (int64_t i = 0; i < outer; i++) {
        const int64_t here = f->count;
        for (int64_t m = 0; m < inner; m++) {
            const int64_t r = f->by_row ? i : m, k = f->by_row ? m : i;
            if (analytic(s, r, k) == 0 && numeric(s, r, k) == 0) continue;
            if (f->count > here) return false;
            f->where[here] = f->by_row ? at(s, r) : k, f->column[here] = k;
            f->ours[here] = analytic(s, r, k), f->right[here] = numeric(s, r, k);
            f->count++;
        }
    }
    return true;
}

/* The gradient is dy times a slope: finds the formula of s->which. */
bool gd_holds_formula(gd_evidence *s)
{
    gd_entries f = {0};
    gd_text is, wanted;
    if (!find_entries(s, &f)) {
        f = (gd_entries){.by_row = true};
        if (!find_entries(s, &f)) return false;
    }
    const gd_spec *shape = f.by_row ? &s->argument->spec : &s->y->spec;
    const gd_points p = points_over(s, shape, f.count, f.where, f.column);
    double *sought = gd_check_numbers(s->c, f.count);
    /* With few digits, two terms fit too many functions. */
    const int terms = s->rtol > 1e-4 || s->which == GD_MIDDLE ? 1 : 2;
    for (int64_t i = 0; i < f.count && sought; i++) {
        const double a = f.ours[i], n = f.right[i];
        sought[i] = s->which == GD_OURS ? a : s->which == GD_MIDDLE ? (a + n) / 2 : n - a;
    }
    if (!sought || !gd_check_formula(s->c, &p, sought, s->tolerance, terms, "dy", &is))
        return false;
    if (s->which != GD_OURS) {
        gd_check_add(s, "%s", is.text);
        return true;
    }
    gd_check_add(s, "%s is %s", !f.by_row && s->rows < f.count ? "the summed term" : "it", is.text);
    if (gd_check_formula(s->c, &p, f.right, s->tolerance, terms, "dy", &wanted))
        gd_check_add(s, " instead of %s", wanted.text);
    return true;
}
