/* jacobian.c - the hypotheses on which dy reaches which gradient, and with what factor.
 *
 * With one-hot probes (evidence.c) the evidence holds the backward's Jacobian and the true one.
 * Comparing them entry by entry shows what a sum over dy cannot: a dy that is left out, a dy taken
 * from the wrong element, a factor that depends on where dy comes from. Absence of a dependence means
 * exactly 0. */
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

bool gd_holds_same_for_each(gd_evidence *s)
{
    return !s->linear && s->same;
}

bool gd_holds_not_linear(gd_evidence *s)
{
    return !s->linear;
}

/* ---- Which dy ----------------------------------------------------------------------------- */

/* The dy of an entry, and the element of the gradient. */
static gd_text name_dy(const gd_evidence *s, int64_t entry)
{
    gd_text text;
    snprintf(text.text, sizeof text.text, "dy%.180s",
             gd_check_indices(&s->y->spec, entry % s->columns).text);
    return text;
}

static gd_text name_x(const gd_evidence *s, int64_t entry)
{
    gd_text text;
    snprintf(text.text, sizeof text.text, "%.60s%.120s", s->argument->name,
             gd_check_indices(&s->argument->spec, at(s, entry / s->columns)).text);
    return text;
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

/* All missing entries are in columns of dy that no element uses: these, or with s->which the others,
 * are a box. */
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
    gd_check_add(s, "%s only the %s ", name_x(s, s->missing_at).text, last ? "last" : "first");
    if (counts == 1)
        gd_check_add(s, "counts: overwritten, not added");
    else
        gd_check_add(s, "%lld count", (long long)counts);
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

/* Whether each element uses all dy along an axis and no others, but should use those along another. */
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
    const int64_t entry = s->missing ? s->missing_at : s->extra_at;
    const gd_text x = name_x(s, entry), dy = name_dy(s, entry);
    if (!s->missing && !s->extra) return false;
    if (!s->missing)
        gd_check_add(s, "%s uses %s, though that y does not depend on it", x.text, dy.text);
    else
        gd_check_add(s, "%s does not use %s", x.text, dy.text);
    if (s->missing && s->extra)
        gd_check_add(s, ", but %s uses %s", name_x(s, s->extra_at).text,
                     name_dy(s, s->extra_at).text);
    return true;
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

/* The values of an input, broadcast over the elements `where` of y; NULL if its shape does not allow
 * it. */
static double *over_y(const gd_evidence *s, const gd_argument *a, int64_t count,
                      const int64_t *where)
{
    const gd_spec *x = &a->spec, *y = &s->y->spec;
    const int more = y->ndim - x->ndim;
    if (!a->given || more < 0 || !gd_dtype_is_real(x->dtype)) return NULL;
    for (int axis = 0; axis < x->ndim; axis++)
        if (x->shape[axis] != 1 && x->shape[axis] != y->shape[more + axis]) return NULL;
    double *value = gd_check_numbers(s->c, count);
    for (int64_t i = 0; i < count && value; i++) {
        int64_t from = 0;
        for (int axis = 0; axis < x->ndim; axis++) {
            const int64_t index = gd_check_index(y, where[i], more + axis);
            from = from * x->shape[axis] + (x->shape[axis] == 1 ? 0 : index);
        }
        value[i] = a->value[from];
    }
    return value;
}

/* The symbols at the elements `where` of y: the output, and the inputs that broadcast to it. */
static gd_points points_over_y(const gd_evidence *s, int64_t count, const int64_t *where)
{
    gd_points p = {.count = count};
    double *y = gd_check_numbers(s->c, count);
    for (int64_t i = 0; i < count && y; i++) y[i] = s->y->base[where[i]];
    for (int i = 0; i < s->c->inputs; i++)
        add_symbol(&p, s->c->input[i].name, over_y(s, &s->c->input[i], count, where));
    add_symbol(&p, "y", y);
    return p;
}

/* Wrong factors of entries, one for each dy (column) or for each element (row). `others`: only the
 * entries with the dy of other elements count. */
typedef struct gd_factors {
    bool others, by_row;
    int64_t count, accurate; /* those of large entries */
    int64_t *at;             /* [count] elements of y at which a factor is known */
    double *factor;          /* [count] */
    double *weight;          /* [count] the norm of the entries from which it is estimated */
} gd_factors;

/* Entry (i, m) of the Jacobian, transposed if necessary so that there is a factor for each i. False
 * if the entry does not count. */
static bool entry(const gd_evidence *s, const gd_factors *f, int64_t i, int64_t m, double *a,
                  double *n)
{
    const int64_t r = f->by_row ? i : m, k = f->by_row ? m : i;
    *a = analytic(s, r, k);
    *n = numeric(s, r, k);
    return !f->others || k != at(s, r);
}

/* Whether each entry is the true one times a factor that depends only on i. */
static bool find_factors(const gd_evidence *s, gd_factors *f)
{
    const int64_t outer = f->by_row ? s->rows : s->columns, inner = s->rows + s->columns - outer;
    double a, n;
    f->at = gd_check_allocate(s->c, outer, sizeof *f->at);
    f->factor = gd_check_numbers(s->c, outer);
    f->weight = gd_check_numbers(s->c, outer);
    if (!f->at || !f->factor || !f->weight) return false;
    for (int64_t i = 0; i < outer; i++) {
        double an = 0, nn = 0;
        for (int64_t m = 0; m < inner; m++) {
            if (!entry(s, f, i, m, &a, &n)) continue;
            an += a * n;
            nn += n * n;
        }
        const double factor = nn > 0 ? an / nn : 1;
        for (int64_t m = 0; m < inner; m++)
            if (entry(s, f, i, m, &a, &n) && !near(s, a, factor * n)) return false;
        if (nn == 0) continue;
        f->accurate += sqrt(nn) > 100 * s->tolerance;
        f->at[f->count] = f->by_row ? at(s, i) : i;
        f->factor[f->count] = factor;
        f->weight[f->count++] = sqrt(nn);
    }
    return f->accurate > 0;
}

/* Whether the factor depends only on the index along the axis (-1: is constant), with several
 * factors for each index. */
static bool one_along(const gd_evidence *s, const gd_factors *f, int axis)
{
    const int64_t size = axis < 0 ? 1 : s->y->spec.shape[axis];
    double *mean = gd_check_numbers(s->c, 2 * size);
    if (!mean || f->accurate < 3 * size) return false;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < f->count; i++) {
            const int64_t index = axis < 0 ? 0 : gd_check_index(&s->y->spec, f->at[i], axis);
            double w = f->weight[i], *sum = mean + 2 * index;
            if (pass && !(w * fabs(f->factor[i] - sum[0] / sum[1]) <= s->tolerance)) return false;
            if (pass) continue;
            sum[0] += w * w * f->factor[i];
            sum[1] += w * w;
        }
    }
    return true;
}

/* Describes the factors, if they have a simple form. */
static bool say_factors(gd_evidence *s, const gd_factors *f)
{
    double *target = gd_check_numbers(s->c, f->count), *exp_y = gd_check_numbers(s->c, f->count);
    int64_t best = 0; /* the factor that is known most accurately */
    gd_text text;
    if (!target || !exp_y) return false;
    for (int64_t i = 0; i < f->count; i++) {
        target[i] = f->weight[i] * f->factor[i];
        exp_y[i] = exp(s->y->base[f->at[i]]);
        if (f->weight[i] > f->weight[best]) best = i;
    }
    if (one_along(s, f, -1)) {
        const double factor = f->factor[best], tolerance = s->tolerance / f->weight[best];
        if (fabs(factor - 1) <= tolerance) return false;
        if (fabs(factor + 1) <= tolerance)
            gd_check_add(s, "the wrong sign");
        else
            gd_check_add(s, "an extra factor %s",
                         gd_check_factor(s->argument, factor, tolerance).text);
        return true;
    }
    gd_points p = points_over_y(s, f->count, f->at);
    add_symbol(&p, "exp(y)", exp_y);
    p.weight = f->weight;
    if (gd_check_formula(s->c, &p, target, s->tolerance, 1, "", &text)) {
        gd_check_add(s, "an extra factor %s", text.text);
        return true;
    }
    for (int axis = 0; axis < s->y->spec.ndim && !f->by_row; axis++) {
        if (!one_along(s, f, axis)) continue;
        gd_check_add(s, "an extra factor for each index along its axis %d", axis);
        return true;
    }
    return false;
}

bool gd_holds_factors(gd_evidence *s)
{
    for (int by_row = 0; by_row <= s->alike && s->which <= s->alike; by_row++) {
        gd_factors f = {.others = s->which, .by_row = by_row};
        if (find_factors(s, &f) && say_factors(s, &f)) return true;
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

/* If each dy contributes to one element only, the gradient is dy times a slope: finds its formula, or
 * with s->which that of the term that is missing. */
bool gd_holds_formula(gd_evidence *s)
{
    int64_t count = 0, *where = gd_check_allocate(s->c, s->columns, sizeof *where);
    double *a = gd_check_numbers(s->c, s->columns), *n = gd_check_numbers(s->c, s->columns);
    gd_text is, wanted;
    if (!where || !a || !n) return false;
    for (int64_t k = 0; k < s->columns; k++) {
        int64_t here = count;
        for (int64_t r = 0; r < s->rows; r++) {
            if (analytic(s, r, k) == 0 && numeric(s, r, k) == 0) continue;
            if (count > here) return false;
            where[count] = k;
            a[count] = analytic(s, r, k);
            n[count++] = numeric(s, r, k);
        }
    }
    const gd_points p = points_over_y(s, count, where);
    /* With few digits, two terms fit too many functions. */
    const int terms = s->rtol > 1e-4 ? 1 : 2;
    for (int64_t i = 0; i < count && s->which; i++) n[i] -= a[i];
    if (!gd_check_formula(s->c, &p, s->which ? n : a, s->tolerance, terms, "dy", &is)) return false;
    if (s->which) {
        gd_check_add(s, "%s", is.text);
        return true;
    }
    gd_check_add(s, "%s is %s", s->rows < count ? "the summed term" : "it", is.text);
    if (gd_check_formula(s->c, &p, n, s->tolerance, terms, "dy", &wanted))
        gd_check_add(s, " instead of %s", wanted.text);
    return true;
}
