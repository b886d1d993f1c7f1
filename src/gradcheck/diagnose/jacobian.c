/* jacobian.c - which dy reaches which gradient, and with what factor.
 *
 * With one-hot probes (evidence.c) the evidence holds the backward's Jacobian and the true one.
 * Comparing them entry by entry shows what a sum over dy cannot: a dy that is left out, a dy taken
 * from the wrong place, a factor that depends on where dy comes from. Absence of a dependence means
 * exactly 0. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"

typedef struct gd_jacobian {
    const gd_evidence *s;
    gd_checker *c;
    const gd_argument *a;
    const gd_result *y;
    int64_t rows, columns; /* elements of the gradient that are known, and of dy */
    const int64_t *place;  /* [rows] among the elements of the evidence, */
    const int64_t *at;     /* and flat indices */
    double tolerance;
    bool alike; /* x and y have the same shape */
    gd_gradcheck_input *out;
    int64_t missing, extra, off; /* entries of that kind; the first missing and extra one: */
    int64_t missing_at, extra_at;
} gd_jacobian;

static double analytic(const gd_jacobian *j, int64_t r, int64_t k)
{
    return j->s->analytic[j->s->measured + k][j->place[r]];
}

static double numeric(const gd_jacobian *j, int64_t r, int64_t k)
{
    return j->s->numeric[j->s->measured + k][j->place[r]];
}

static bool near(const gd_jacobian *j, double a, double b)
{
    return fabs(a - b) <= j->tolerance;
}

/* ---- Linearity ---------------------------------------------------------------------------- */

/* Whether the gradients are the product of the analytic Jacobian and dy, for each set of the check,
 * within the rounding of a sum of such terms. *same: whether they do not depend on dy at all. */
static bool adds_up(const gd_jacobian *j, bool *same)
{
    const gd_evidence *s = j->s;
    double most[2] = {0, 0}; /* of the sums' terms, and of what is missing */
    *same = true;
    for (int set = 0; set < s->measured; set++) {
        const double *dy = s->cotangent[set][0];
        for (int64_t r = 0; r < j->rows; r++) {
            const double g = s->analytic[set][j->place[r]];
            double sum = 0, terms = 0;
            for (int64_t k = 0; k < j->columns; k++) {
                sum += analytic(j, r, k) * dy[k];
                terms += fabs(analytic(j, r, k) * dy[k]);
                *same = *same && fabs(analytic(j, r, k) - g) <= s->rtol * s->scale[set];
            }
            most[0] = fmax(most[0], terms);
            most[1] = fmax(most[1], fabs(sum - g) - s->rtol * s->scale[set]);
        }
    }
    return most[1] <= 10 * s->rtol * most[0];
}

/* Whether twice the dy, and the opposite one, give twice the gradient and the opposite one. These
 * are exact for every formula that is linear in dy, however it is rounded. */
static gd_status scales(const gd_jacobian *j, bool *yes)
{
    static const double factors[] = {2, -1};
    const gd_evidence *s = j->s;
    const double *dy = s->cotangent[s->set][0];
    double **gradient, *u = gd_check_numbers(j->c, j->columns);
    gd_status status = gd_check_make_gradients(j->c, &gradient);
    if (!u) return GD_ERROR_MEMORY;
    for (int i = 0; i < 2 && !status; i++) {
        for (int64_t k = 0; k < j->columns; k++) u[k] = factors[i] * dy[k];
        status = gd_check_backward(j->c, &u, gradient);
        for (int64_t r = 0; r < j->rows && !status; r++) {
            const double g = s->analytic[s->set][j->place[r]];
            *yes = *yes && fabs(gradient[s->input][j->at[r]] - factors[i] * g) <=
                               s->rtol * s->scale[s->set];
        }
    }
    return status;
}

/* ---- Which dy ----------------------------------------------------------------------------- */

static gd_text place_of_dy(const gd_jacobian *j, int64_t k)
{
    gd_text text;
    snprintf(text.text, sizeof text.text, "dy%.180s",
             gd_check_place(j->y->ndim, j->y->shape, k).text);
    return text;
}

static gd_text place_of_x(const gd_jacobian *j, int64_t r)
{
    gd_text text;
    snprintf(text.text, sizeof text.text, "%.60s%.120s", j->a->name,
             gd_check_place(j->a->ndim, j->a->shape, j->at[r]).text);
    return text;
}

static bool is_missing(const gd_jacobian *j, int64_t r, int64_t k)
{
    return analytic(j, r, k) == 0 && fabs(numeric(j, r, k)) > j->tolerance;
}

/* Not if the output is so large that the step would not move it either way. */
static bool is_extra(const gd_jacobian *j, int64_t r, int64_t k)
{
    const double step = j->c->options.step * j->a->scale, a = fabs(analytic(j, r, k));
    const double unit = gd_check_rounding(j->y->measured) * fabs(j->y->base[k]);
    return numeric(j, r, k) == 0 && a > j->tolerance && a * step > 8 * unit;
}

static void count_entries(gd_jacobian *j)
{
    j->missing_at = j->extra_at = -1;
    for (int64_t r = 0; r < j->rows; r++) {
        for (int64_t k = 0; k < j->columns; k++) {
            if (is_missing(j, r, k)) {
                if (!j->missing++) j->missing_at = r * j->columns + k;
            } else if (is_extra(j, r, k)) {
                if (!j->extra++) j->extra_at = r * j->columns + k;
            } else {
                j->off += !near(j, analytic(j, r, k), numeric(j, r, k));
            }
        }
    }
}

/* The columns marked with `mark`, as "dy[3, :]"; "" if they are not a box. */
static gd_text box(const gd_jacobian *j, const bool *marked, bool mark)
{
    const gd_result *y = j->y;
    gd_text text = {"dy["};
    int64_t count = 0, inside = 1, first = -1;
    for (int64_t k = 0; k < j->columns; k++) {
        if (marked[k] != mark) continue;
        if (first < 0) first = k;
        count++;
    }
    for (int axis = 0; axis < y->ndim && first >= 0; axis++) {
        bool one = true;
        int64_t index = gd_check_index(y->ndim, y->shape, first, axis);
        for (int64_t k = 0; k < j->columns; k++)
            if (marked[k] == mark) one = one && gd_check_index(y->ndim, y->shape, k, axis) == index;
        size_t used = strlen(text.text);
        const char *comma = axis ? ", " : "";
        if (!one) inside *= y->shape[axis];
        if (one)
            snprintf(text.text + used, sizeof text.text - used, "%s%lld", comma, (long long)index);
        else
            snprintf(text.text + used, sizeof text.text - used, "%s:", comma);
    }
    strcat(text.text, "]"); /* 8 indices of at most 20 characters leave room */
    return first < 0 || count != inside ? (gd_text){""} : text;
}

/* All missing entries are in columns of dy that no element uses. */
static bool dy_left_out(const gd_jacobian *j)
{
    bool *taken = gd_check_allocate(j->c, j->columns, sizeof *taken);
    if (!taken || j->off) return false;
    for (int64_t k = 0; k < j->columns; k++) {
        bool needed = false;
        for (int64_t r = 0; r < j->rows; r++) needed = needed || numeric(j, r, k) != 0;
        taken[k] = j->s->used[k] || !needed;
    }
    for (int64_t r = 0; r < j->rows; r++)
        for (int64_t k = 0; k < j->columns; k++)
            if (taken[k] && is_missing(j, r, k)) return false;
    const gd_text without = box(j, taken, false), with = box(j, taken, true);
    if (*without.text)
        gd_check_say(j->out, "%s is left out", without.text);
    else if (*with.text)
        gd_check_say(j->out, "only %s is used", with.text);
    return *without.text || *with.text;
}

/* An element uses only the last (or the first) of several dy that it should sum. */
static bool overwritten(const gd_jacobian *j)
{
    bool last = !j->off, first = !j->off;
    int64_t counts = 0; /* how many, for the first such element */
    for (int64_t r = 0; r < j->rows; r++) {
        int64_t low[2] = {j->columns, j->columns}, high[2] = {-1, -1}; /* kept, missing */
        int64_t count[2] = {0, 0};
        for (int64_t k = 0; k < j->columns; k++) {
            int kind = is_missing(j, r, k);
            if (!kind && analytic(j, r, k) == 0) continue;
            if (k < low[kind]) low[kind] = k;
            high[kind] = k;
            count[kind]++;
        }
        if (!count[1]) continue;
        if (r == j->missing_at / j->columns) counts = count[0];
        last = last && count[0] && low[0] > high[1];
        first = first && count[0] && high[0] < low[1];
    }
    if (!last && !first) return false;
    const gd_text x = place_of_x(j, j->missing_at / j->columns);
    if (counts == 1)
        gd_check_say(j->out, "of the dy summed into %s only the %s counts: overwritten, not added",
                     x.text, last ? "last" : "first");
    else
        gd_check_say(j->out, "of the dy summed into %s only the %s %lld count", x.text,
                     last ? "last" : "first", (long long)counts);
    return true;
}

/* The only axis along which element and dy of each entry of a kind differ; -1: there is none. */
static int axis_of(const gd_jacobian *j, bool (*kind)(const gd_jacobian *, int64_t, int64_t))
{
    for (int axis = 0; axis < j->y->ndim && j->alike; axis++) {
        bool all = true;
        for (int64_t r = 0; r < j->rows && all; r++)
            for (int64_t k = 0; k < j->columns && all; k++)
                for (int other = 0; other < j->y->ndim && kind(j, r, k); other++)
                    all = all && (other == axis ||
                                  gd_check_index(j->y->ndim, j->y->shape, j->at[r], other) ==
                                      gd_check_index(j->y->ndim, j->y->shape, k, other));
        if (all) return axis;
    }
    return -1;
}

/* Each element uses only its own dy, and should use others, too. */
static bool own_alone(const gd_jacobian *j)
{
    if (!j->alike || j->s->strays) return false;
    for (int64_t r = 0; r < j->rows; r++)
        if (is_missing(j, r, j->at[r])) return false;
    const int axis = axis_of(j, is_missing);
    gd_check_say(j->out, "each element uses only its own dy: a sum");
    if (axis >= 0) gd_check_say(j->out, " along axis %d", axis);
    gd_check_say(j->out, " is missing");
    return true;
}

/* Whether an element and a dy differ at most along the axis. */
static bool on_a_line(const gd_jacobian *j, int64_t r, int64_t k, int axis)
{
    for (int other = 0; other < j->y->ndim; other++)
        if (other != axis && gd_check_index(j->y->ndim, j->y->shape, j->at[r], other) !=
                                 gd_check_index(j->y->ndim, j->y->shape, k, other))
            return false;
    return true;
}

/* Whether each element uses all dy along the axis `from` and no others, but should use those along
 * the axis `to`. */
static bool along_another_axis(const gd_jacobian *j, int from, int to)
{
    if (from < 0 || to < 0 || from == to) return false;
    for (int64_t r = 0; r < j->rows; r++)
        for (int64_t k = 0; k < j->columns; k++)
            if ((analytic(j, r, k) != 0) != on_a_line(j, r, k, from) ||
                (numeric(j, r, k) != 0) != on_a_line(j, r, k, to))
                return false;
    return true;
}

static void wrong_places(const gd_jacobian *j)
{
    const int64_t at = j->missing ? j->missing_at : j->extra_at;
    const gd_text x = place_of_x(j, at / j->columns), dy = place_of_dy(j, at % j->columns);
    const int from = axis_of(j, is_extra), to = axis_of(j, is_missing);
    if (!j->missing)
        gd_check_say(j->out, "%s uses %s, though that y does not depend on it", x.text, dy.text);
    else if (!j->extra)
        gd_check_say(j->out, "%s does not use %s", x.text, dy.text);
    else if (along_another_axis(j, from, to))
        gd_check_say(j->out, "a sum runs along axis %d instead of axis %d", from, to);
    else
        gd_check_say(j->out, "%s does not use %s, but %s uses %s", x.text, dy.text,
                     place_of_x(j, j->extra_at / j->columns).text,
                     place_of_dy(j, j->extra_at % j->columns).text);
}

static bool transposed(const gd_jacobian *j)
{
    if (j->rows != j->columns || j->rows != j->a->count) return false;
    for (int64_t r = 0; r < j->rows; r++)
        for (int64_t k = 0; k < j->columns; k++)
            if (!near(j, analytic(j, r, k), numeric(j, k, r))) return false;
    gd_check_say(j->out, "the forward's own matrix is applied to dy, not its transpose");
    return true;
}

/* ---- Which factor ------------------------------------------------------------------------- */

static void add_symbol(gd_points *p, const char *name, double *value)
{
    if (p->symbols == GD_SYMBOLS || !value) return;
    p->name[p->symbols] = name;
    p->value[p->symbols++] = value;
}

/* The values of an input, broadcast over the elements `at` of y; NULL if its shape does not allow
 * it. */
static double *over_y(const gd_jacobian *j, const gd_argument *a, int64_t count, const int64_t *at)
{
    const gd_result *y = j->y;
    double *value = NULL;
    if (!a->given || a->ndim > y->ndim || !gd_dtype_is_real(a->dtype)) return NULL;
    for (int axis = 0; axis < a->ndim; axis++)
        if (a->shape[axis] != 1 && a->shape[axis] != y->shape[y->ndim - a->ndim + axis])
            return NULL;
    value = gd_check_numbers(j->c, count);
    for (int64_t i = 0; i < count && value; i++) {
        int64_t from = 0;
        for (int axis = 0; axis < a->ndim; axis++)
            from = from * a->shape[axis] +
                   (a->shape[axis] == 1
                        ? 0
                        : gd_check_index(y->ndim, y->shape, at[i], y->ndim - a->ndim + axis));
        value[i] = a->value[from];
    }
    return value;
}

/* The symbols at the elements `at` of y: the output, and the inputs that broadcast to it. */
static gd_points points_over_y(const gd_jacobian *j, int64_t count, const int64_t *at)
{
    gd_points p = {.count = count};
    double *y = gd_check_numbers(j->c, count);
    for (int64_t i = 0; i < count && y; i++) y[i] = j->y->base[at[i]];
    for (int i = 0; i < j->c->inputs; i++)
        add_symbol(&p, j->c->input[i].name, over_y(j, &j->c->input[i], count, at));
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
static bool entry(const gd_jacobian *j, const gd_factors *f, int64_t i, int64_t m, double *a,
                  double *n)
{
    const int64_t r = f->by_row ? i : m, k = f->by_row ? m : i;
    *a = analytic(j, r, k);
    *n = numeric(j, r, k);
    return !f->others || k != j->at[r];
}

/* Whether each entry is the true one times a factor that depends only on i. */
static bool find_factors(const gd_jacobian *j, gd_factors *f)
{
    const int64_t outer = f->by_row ? j->rows : j->columns, inner = j->rows + j->columns - outer;
    double a, n;
    f->at = gd_check_allocate(j->c, outer, sizeof *f->at);
    f->factor = gd_check_numbers(j->c, outer);
    f->weight = gd_check_numbers(j->c, outer);
    if (!f->at || !f->factor || !f->weight) return false;
    for (int64_t i = 0; i < outer; i++) {
        double an = 0, nn = 0;
        for (int64_t m = 0; m < inner; m++) {
            if (!entry(j, f, i, m, &a, &n)) continue;
            an += a * n;
            nn += n * n;
        }
        const double factor = nn > 0 ? an / nn : 1;
        for (int64_t m = 0; m < inner; m++)
            if (entry(j, f, i, m, &a, &n) && !near(j, a, factor * n)) return false;
        if (nn == 0) continue;
        f->accurate += sqrt(nn) > 100 * j->tolerance;
        f->at[f->count] = f->by_row ? j->at[i] : i;
        f->factor[f->count] = factor;
        f->weight[f->count++] = sqrt(nn);
    }
    return f->accurate > 0;
}

/* Whether the factor depends only on the index along the axis (-1: is constant), with several
 * factors for each index. */
static bool one_along(const gd_jacobian *j, const gd_factors *f, int axis)
{
    const int64_t size = axis < 0 ? 1 : j->y->shape[axis];
    double *mean = gd_check_numbers(j->c, 2 * size);
    if (!mean || f->accurate < 3 * size) return false;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < f->count; i++) {
            int64_t at = axis < 0 ? 0 : gd_check_index(j->y->ndim, j->y->shape, f->at[i], axis);
            double w = f->weight[i], *sum = mean + 2 * at;
            if (pass && !(w * fabs(f->factor[i] - sum[0] / sum[1]) <= j->tolerance)) return false;
            if (pass) continue;
            sum[0] += w * w * f->factor[i];
            sum[1] += w * w;
        }
    }
    return true;
}

/* Describes the factors, if they have a simple form. */
static bool say_factors(const gd_jacobian *j, const gd_factors *f)
{
    const char *what = f->others ? "the dy of other elements" : "dy";
    double *target = gd_check_numbers(j->c, f->count);
    int64_t best = 0; /* the factor that is known most accurately */
    gd_text text;
    gd_points p = points_over_y(j, f->count, f->at);
    if (!target) return false;
    for (int64_t i = 0; i < f->count; i++) {
        target[i] = f->weight[i] * f->factor[i];
        if (f->weight[i] > f->weight[best]) best = i;
    }
    if (one_along(j, f, -1)) {
        const double factor = f->factor[best], tolerance = j->tolerance / f->weight[best];
        if (fabs(factor - 1) <= tolerance) return false;
        if (fabs(factor + 1) <= tolerance)
            gd_check_say(j->out, "%s has the wrong sign", what);
        else
            gd_check_say(j->out, "%s has an extra factor %s", what,
                         gd_check_factor(j->a, factor, tolerance).text);
        return true;
    }
    double *exp_y = gd_check_numbers(j->c, f->count);
    for (int64_t i = 0; i < f->count && exp_y; i++) exp_y[i] = exp(j->y->base[f->at[i]]);
    add_symbol(&p, "exp(y)", exp_y);
    p.weight = f->weight;
    if (gd_check_formula(j->c, &p, target, j->tolerance, 1, "", &text)) {
        gd_check_say(j->out, "%s has an extra factor %s", what, text.text);
        return true;
    }
    for (int axis = 0; axis < j->y->ndim && !f->by_row; axis++) {
        if (!one_along(j, f, axis)) continue;
        gd_check_say(j->out, "%s has an extra factor for each index along its axis %d", what, axis);
        return true;
    }
    return false;
}

static bool factors(const gd_jacobian *j)
{
    for (int others = 0; others <= j->alike; others++) {
        for (int by_row = 0; by_row <= j->alike; by_row++) {
            gd_factors f = {.others = others, .by_row = by_row};
            if (find_factors(j, &f) && say_factors(j, &f)) return true;
        }
    }
    return false;
}

/* Every dy is used without the factor that it should have. */
static bool no_factor(const gd_jacobian *j)
{
    bool factor = false;
    for (int64_t r = 0; r < j->rows; r++) {
        for (int64_t k = 0; k < j->columns; k++) {
            const double a = analytic(j, r, k), n = numeric(j, r, k);
            if (n == 0 && a == 0) continue;
            if (n == 0 || !(fabs(a - 1) <= j->s->rtol)) return false;
            factor = factor || !near(j, fabs(n), 1);
        }
    }
    if (factor) gd_check_say(j->out, "dy is summed without its factor");
    return factor;
}

/* ---- As a formula ------------------------------------------------------------------------- */

/* If each dy contributes to one element only, the gradient is dy times a slope: finds its
 * formula. */
static bool slopes(const gd_jacobian *j)
{
    int64_t count = 0, *at = gd_check_allocate(j->c, j->columns, sizeof *at);
    double *a = gd_check_numbers(j->c, j->columns), *n = gd_check_numbers(j->c, j->columns);
    gd_text is, wanted;
    if (!at || !a || !n) return false;
    for (int64_t k = 0; k < j->columns; k++) {
        int64_t here = count;
        for (int64_t r = 0; r < j->rows; r++) {
            if (analytic(j, r, k) == 0 && numeric(j, r, k) == 0) continue;
            if (count > here) return false;
            at[count] = k;
            a[count] = analytic(j, r, k);
            n[count++] = numeric(j, r, k);
        }
    }
    const gd_points p = points_over_y(j, count, at);
    /* With few digits, two terms fit too many functions. */
    const int terms = j->s->rtol > 1e-4 ? 1 : 2;
    if (gd_check_formula(j->c, &p, a, j->tolerance, terms, "dy", &is)) {
        gd_check_say(j->out, "%s is %s", j->rows < count ? "the summed term" : "it", is.text);
        if (gd_check_formula(j->c, &p, n, j->tolerance, terms, "dy", &wanted))
            gd_check_say(j->out, " instead of %s", wanted.text);
        return true;
    }
    for (int64_t i = 0; i < count; i++) n[i] -= a[i];
    if (!gd_check_formula(j->c, &p, n, j->tolerance, terms, "dy", &wanted)) return false;
    gd_check_say(j->out, "the term %s is missing", wanted.text);
    return true;
}

/* ---- All ---------------------------------------------------------------------------------- */

static gd_status look(gd_jacobian *j)
{
    bool same = false, scaled = true;
    const bool linear = adds_up(j, &same);
    gd_status status = scales(j, &scaled);
    if (status) return status;
    if (!linear || !scaled) {
        gd_check_say(j->out, same ? "it is the same for every dy: dy is not used"
                                  : "it is not linear in dy");
        return GD_OK;
    }
    count_entries(j);
    if (!j->missing && !j->extra && !j->off) return GD_OK;
    if (transposed(j)) return GD_OK;
    if (j->missing && !j->extra && (own_alone(j) || dy_left_out(j) || overwritten(j))) return GD_OK;
    if (slopes(j) || no_factor(j) || factors(j)) return GD_OK;
    if (j->missing || j->extra) wrong_places(j);
    return GD_OK;
}

gd_status gd_check_jacobian(const gd_evidence *s, gd_gradcheck_input *out)
{
    gd_checker *c = s->c;
    const gd_result *y = &c->output[0];
    gd_jacobian j = {.s = s, .c = c, .a = s->argument, .y = y, .columns = y->count, .out = out};
    int64_t *place = gd_check_allocate(c, 2 * s->count, sizeof *place), *at = place + s->count;
    if (!place) return GD_ERROR_MEMORY;
    if (!s->one_hot) return GD_OK;
    j.alike =
        j.a->ndim == y->ndim && !memcmp(j.a->shape, y->shape, (size_t)y->ndim * sizeof *y->shape);
    for (int64_t e = 0; e < s->count; e++) {
        if (s->skip[e]) continue;
        place[j.rows] = e;
        at[j.rows++] = s->at[e];
    }
    j.place = place;
    j.at = at;
    j.tolerance = s->rtol * s->scale[s->measured];
    gd_status status = j.tolerance > 0 ? look(&j) : GD_OK;
    return status ? status : gd_error_status(c->ctx);
}
