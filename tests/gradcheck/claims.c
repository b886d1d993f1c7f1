/* claims.c - the truth of each sentence that gradcheck may say of a gradient. */
#include "claims_reader.h"

/* ---- The error of lines of elements ------------------------------------------------------- */

/* Whether the error of each dy is a f + b g along every line of elements. */
static bool error_is(const reader *c, bool by_row, bool constant, bool of_input)
{
    const claims_array *x = &c->t->x;
    const int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1, m = rows(c) / n;
    const int64_t lines = by_row ? m : n, length = by_row ? n : m;
    for (int64_t k = 0; k < columns(c); k++) {
        for (int64_t line = 0; line < lines; line++) {
            double s[5] = {0}, a = 0, b = 0;
            for (int pass = 0; pass < 2; pass++) {
                for (int64_t i = 0; i < length; i++) {
                    const int64_t r = by_row ? line * n + i : i * n + line;
                    const double f = constant ? 1 : 0, g = of_input ? x->value[r] : 0;
                    const double e = ours(c, r, k) - right(c, r, k);
                    if (pass && !same(c, a * f + b * g, e)) return false;
                    s[0] += f * f, s[1] += f * g, s[2] += g * g, s[3] += f * e, s[4] += g * e;
                }
                if (pass) continue;
                const double det = s[0] * s[2] - s[1] * s[1];
                if (constant && of_input)
                    a = (s[3] * s[2] - s[4] * s[1]) / det, b = (s[4] * s[0] - s[3] * s[1]) / det;
                else
                    a = constant ? s[3] / s[0] : 0, b = of_input ? s[4] / s[2] : 0;
            }
        }
    }
    return true;
}

static double largest_sum(const reader *c, const double *j, int axis)
{
    const claims_array *x = &c->t->x;
    int64_t stride = 1;
    double most = 0;
    for (int k = axis + 1; k < x->ndim; k++) stride *= x->shape[k];
    for (int64_t r = 0; r < rows(c); r++) {
        if (index_of(x, r, axis)) continue;
        for (int64_t k = 0; k < columns(c); k++) {
            double sum = 0;
            for (int64_t i = 0; i < x->shape[axis]; i++)
                sum += j[(r + i * stride) * columns(c) + k];
            most = fmax(most, fabs(sum));
        }
    }
    return most;
}

/* One element of each row is off, the others are right; or the next, too. */
static void one_of_each_row(reader *c)
{
    const claims_array *x = &c->t->x;
    const int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1;
    double each = NAN;
    if (!next(c, "the same")) each = number(c);
    const bool nexts = next(c, ", and the next by the opposite: its value is one place further");
    for (int64_t k = 0; k < columns(c); k++) {
        double error = 0;
        for (int64_t m = 0; m < rows(c) / n; m++) {
            int64_t off = 0;
            double sum = 0, most = 0;
            for (int64_t r = m * n; r < (m + 1) * n; r++) {
                const double e = ours(c, r, k) - right(c, r, k);
                off += fabs(e) > c->slack;
                sum += e;
                if (fabs(e) > fabs(most)) most = e;
            }
            judge(c, off <= (nexts ? 2 : 1), "one element of each row is off");
            judge(c, !nexts || fabs(sum) <= 4 * c->slack, "the next by the opposite");
            if (!off) continue;
            if (error == 0) error = fabs(most);
            judge(c, fabs(fabs(most) - error) <= 4 * c->slack, "each by the same");
        }
    }
    judge(c, isnan(each) || c->t->nonlinear, "each by a number, for every dy");
}

/* ---- Places ------------------------------------------------------------------------------- */

/* "dy[3, :]" or "x[1, 2]": marks the elements of the box. */
static bool box(reader *c, const claims_array *a, const char *name, bool *inside)
{
    int64_t index[CLAIMS_DIMS];
    if (!next(c, name)) return false;
    for (int64_t i = 0; i < a->count; i++) inside[i] = true;
    if (!a->ndim) return true;
    if (!next(c, "[")) return false;
    for (int axis = 0; axis < a->ndim; axis++) {
        index[axis] = next(c, ":") ? -1 : (int64_t)number(c);
        if (!next(c, axis + 1 < a->ndim ? ", " : "]")) return false;
        for (int64_t i = 0; i < a->count; i++)
            if (index[axis] >= 0 && index_of(a, i, axis) != index[axis]) inside[i] = false;
    }
    return true;
}

/* "x[1, 2]": one element. */
static int64_t one_place(reader *c, const claims_array *a, const char *name)
{
    bool *inside = calloc((size_t)a->count + 1, 1);
    int64_t found = -1;
    if (box(c, a, name, inside))
        for (int64_t i = 0; i < a->count; i++)
            if (inside[i]) found = i;
    free(inside);
    judge(c, found >= 0, "a place");
    return found < 0 ? 0 : found;
}

static bool on_a_line(const reader *c, int64_t r, int64_t k, int axis)
{
    for (int other = 0; other < c->t->y.ndim; other++)
        if (other != axis && index_of(&c->t->x, r, other) != index_of(&c->t->y, k, other))
            return false;
    return true;
}

/* "dy[3, :] is left out", "only dy[3, :] is used" */
static void dy_left_out(reader *c, bool only)
{
    bool *inside = calloc((size_t)columns(c) + 1, 1);
    judge(c, box(c, &c->t->y, "dy", inside) && next(c, only ? " is used" : " is left out"),
          "dy is left out, or used");
    bool needed = false;
    for (int64_t k = 0; k < columns(c); k++)
        for (int64_t r = 0; r < rows(c); r++) {
            const bool used = inside[k] == only;
            if (!used) judge(c, ours(c, r, k) == 0, "dy is left out");
            if (used) judge(c, same(c, ours(c, r, k), right(c, r, k)), "the rest is right");
            needed = needed || (!used && right(c, r, k) != 0);
        }
    judge(c, needed, "it should be used");
    free(inside);
}

static void counts(reader *c)
{
    const int64_t r = one_place(c, &c->t->x, c->t->x.name);
    const bool read = next(c, " only the "), last = next(c, "last");
    if (!last) next(c, "first");
    int64_t n = 1, kept = 0, missing = 0;
    if (!next(c, " counts: overwritten, not added")) {
        next(c, " ");
        n = (int64_t)number(c);
        judge(c, next(c, " count") && n > 1, "only the last N count");
    }
    for (int64_t i = 0; i < columns(c); i++) {
        const int64_t k = last ? columns(c) - 1 - i : i;
        if (right(c, r, k) == 0) continue;
        if (ours(c, r, k) != 0)
            judge(c, !missing && same(c, ours(c, r, k), right(c, r, k)), "only the last counts");
        kept += ours(c, r, k) != 0;
        missing += ours(c, r, k) == 0;
    }
    judge(c, read && kept == n && missing, "only the last counts");
}

static void own_alone(reader *c)
{
    int axis = -1;
    bool others = false;
    if (next(c, " along axis ")) axis = (int)number(c);
    judge(c, next(c, " is missing") && alike(c), "each element uses only its own dy");
    for (int64_t r = 0; r < rows(c) && alike(c); r++)
        for (int64_t k = 0; k < columns(c); k++) {
            if (r == k) {
                judge(c, ours(c, r, k) != 0 || fabs(right(c, r, k)) <= c->slack, "its own dy");
                continue;
            }
            judge(c, ours(c, r, k) == 0, "only its own dy");
            if (fabs(right(c, r, k)) <= c->slack) continue;
            others = true;
            judge(c, axis < 0 || on_a_line(c, r, k, axis), "a sum along that axis is missing");
        }
    judge(c, others, "a sum is missing");
}

static void wrong_axis(reader *c)
{
    const int from = (int)number(c), to = next(c, " instead of axis ") ? (int)number(c) : -1;
    judge(c, alike(c) && from != to, "a sum runs along the wrong axis");
    for (int64_t r = 0; r < rows(c) && alike(c); r++)
        for (int64_t k = 0; k < columns(c); k++) {
            judge(c, (ours(c, r, k) != 0) == on_a_line(c, r, k, from), "a sum runs along axis");
            judge(c, fabs(right(c, r, k)) <= c->slack || on_a_line(c, r, k, to), "instead of axis");
        }
}

/* "x[0] uses dy[1], though that y does not depend on it", "x[0] does not use dy[1]", "..., but x[0]
 * uses dy[2]" */
static void uses(reader *c)
{
    const int64_t r = one_place(c, &c->t->x, c->t->x.name);
    if (next(c, " uses ")) {
        const int64_t k = one_place(c, &c->t->y, "dy");
        judge(c, next(c, ", though that y does not depend on it"), "uses");
        judge(c, ours(c, r, k) != 0 && fabs(right(c, r, k)) <= c->slack, "uses, but should not");
        return;
    }
    judge(c, next(c, " does not use "), "uses");
    const int64_t k = one_place(c, &c->t->y, "dy");
    judge(c, ours(c, r, k) == 0 && right(c, r, k) != 0, "does not use");
    if (!next(c, ", but ")) return;
    const int64_t s = one_place(c, &c->t->x, c->t->x.name);
    judge(c, next(c, " uses "), "but uses");
    const int64_t l = one_place(c, &c->t->y, "dy");
    judge(c, ours(c, s, l) != 0 && fabs(right(c, s, l)) <= c->slack, "but uses");
}

/* ---- Sentences ---------------------------------------------------------------------------- */

static void constant_factor(reader *c, bool given)
{
    double factor = -1;
    if (given) judge(c, claims_factor_number(c, &factor), "a factor");
    judge(c, wrong_rows_are(c, factor), "a constant factor");
    if (where(c)) return;
    for (int64_t r = 0; r < rows(c); r++)
        judge(c, row_is_multiple(c, r, factor), "a factor of all elements");
}

static void a_single_element(reader *c)
{
    double percent = NAN;
    if (next(c, ", by ")) {
        percent = number(c);
        judge(c, next(c, "%"), "by N%");
    }
    if (next(c, ", another one with each dy")) {
        judge(c, c->t->nonlinear, "another with each dy");
        return;
    }
    judge(c, rows_off(c, c->slack) <= 1 && rows_off(c, c->slack / 50) >= 1,
          "a single element is off");
    for (int64_t r = 0; r < rows(c) && !isnan(percent); r++)
        if (row_wrong(c, r)) {
            const double rough = 0.006 * fabs(percent) / 100 * c->largest;
            for (int64_t k = 0; k < columns(c); k++)
                judge(c,
                      fabs(ours(c, r, k) - (1 + percent / 100) * right(c, r, k)) <=
                          c->slack + rough,
                      "off by that much");
        }
}

static void wrong_zeros(reader *c)
{
    const double lost = number(c);
    judge(c, next(c, " where there should be none, "), "zeros");
    const double extra = number(c);
    judge(c, next(c, " missing"), "zeros");
    double l = 0, e = 0, wrongs = 0;
    for (int64_t r = 0; r < rows(c); r++) {
        if (!row_wrong(c, r)) continue;
        wrongs++;
        if (row_zero(c, c->t->right, r, c->slack))
            e++;
        else
            l += row_zero(c, c->t->ours, r, 0);
    }
    judge(c, l == lost && e == extra && wrongs == lost + extra, "zeros in the wrong places");
}

static bool constant_added(const reader *c, bool for_each_dy)
{
    for (int64_t k = 0; k < columns(c); k++)
        for (int64_t r = 0; r < rows(c); r++)
            if (!same(c, ours(c, r, k) - right(c, r, k),
                      ours(c, 0, for_each_dy ? k : 0) - right(c, 0, for_each_dy ? k : 0)))
                return false;
    return true;
}

static void gradient_of_another(reader *c)
{
    const claims_truth *t = c->t;
    for (int i = 0; i < t->inputs; i++) {
        if (!t->input[i].name || strcmp(c->at, t->input[i].name) != 0) continue;
        c->at += strlen(c->at);
        bool equal = t->others[i] && t->input[i].count == rows(c);
        for (int64_t r = 0; r < rows(c) && equal; r++)
            equal = row_is(c, r, t->others[i] + r * columns(c), 1);
        judge(c, equal, "it is the gradient of another");
        return;
    }
    judge(c, false, "it is the gradient of a name");
}

static void without_factor(reader *c)
{
    for (int64_t r = 0; r < rows(c); r++)
        for (int64_t k = 0; k < columns(c); k++)
            judge(c, right(c, r, k) == 0 ? ours(c, r, k) == 0 : fabs(ours(c, r, k) - 1) < 1e-2,
                  "without its factor");
}

/* "3 of 12 are NaN" and its like */
static void not_numbers(reader *c)
{
    const claims_truth *t = c->t;
    const double some = number(c);
    judge(c, next(c, " of ") && number(c) == (double)rows(c), "N of all");
    if (next(c, " are NaN"))
        judge(c, some == (double)t->nan && !t->garbage, "are NaN");
    else if (next(c, " are added to what their memory held, a NaN, though accumulate is not set"))
        judge(c, t->garbage && some == (double)rows(c), "are added");
    else
        judge(c, false, "a known sentence");
}

static void sentence(reader *c)
{
    const claims_truth *t = c->t;
    const char *begin = c->at;
    if (*begin >= '0' && *begin <= '9') {
        not_numbers(c);
    } else if (next(c, "the gradient is zero throughout")) {
        for (int64_t r = 0; r < rows(c); r++)
            judge(c, row_zero(c, t->ours, r, 0), "zero throughout");
    } else if (next(c, "a single element is off")) {
        a_single_element(c);
    } else if (next(c, "zeros in the wrong places: ")) {
        wrong_zeros(c);
    } else if (next(c, "a gradient where it should be 0")) {
        for (int64_t r = 0; r < rows(c); r++)
            judge(c, !row_wrong(c, r) || row_zero(c, t->right, r, c->slack), "should be 0");
        where(c);
    } else if (next(c, "the sign is flipped")) {
        constant_factor(c, false);
    } else if (next(c, "a constant factor ")) {
        constant_factor(c, true);
    } else if (next(c, "the gradient is zero at the wrong elements")) {
        for (int64_t r = 0; r < rows(c); r++)
            judge(c, !row_wrong(c, r) || row_zero(c, t->ours, r, 0), "zero at the wrong elements");
        where(c);
    } else if (next(c, "the right values in the wrong places")) {
        const claims_array *x = &t->x;
        const int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1;
        if (next(c, ": transposed"))
            judge(c, transposed_places(c), "transposed");
        else if (next(c, ": moved by one element"))
            judge(c, shifted(c, 1) || shifted(c, rows(c) - 1), "moved by one element");
        else if (next(c, ": moved by one row"))
            judge(c, shifted(c, n) || shifted(c, rows(c) - n), "moved by one row");
        else
            judge(c, permutation(c), "the right values");
    } else if (next(c, "one element of each row is off, each by ")) {
        one_of_each_row(c);
    } else if (next(c, "it is the gradient of ")) {
        gradient_of_another(c);
    } else if (next(c, "the true gradient is zero throughout, this one is not")) {
        for (int64_t r = 0; r < rows(c); r++)
            judge(c, row_zero(c, t->right, r, 0), "the true gradient is zero");
    } else if (next(c, "a constant is added")) {
        const bool for_each = next(c, ", another for each dy");
        judge(c, constant_added(c, for_each), "a constant is added");
    } else if (next(c, "a factor for each row: a scale along the last axis")) {
        judge(c, claims_one_factor(c, EACH_ROW, false), "a factor for each row");
    } else if (next(c, "a factor for each column: a weight")) {
        judge(c, claims_one_factor(c, EACH_COLUMN, false), "a factor for each column");
    } else if (next(c, "each row is off by a constant and a multiple of the input")) {
        judge(c, error_is(c, true, true, true), "a constant and a multiple of the input");
    } else if (next(c, "each row is off by a constant: a mean term")) {
        judge(c, error_is(c, true, true, false), "each row is off by a constant");
    } else if (next(c, "each column is off by a constant")) {
        judge(c, error_is(c, false, true, false), "each column is off by a constant");
    } else if (next(c, "each row is off by a multiple of the input")) {
        judge(c, error_is(c, true, false, true), "a multiple of the input");
    } else if (next(c, "the true gradient sums to 0 along axis ")) {
        const int axis = (int)number(c);
        judge(c, next(c, ", this one does not"), "sums to 0");
        judge(c, largest_sum(c, t->right, axis) <= 3 * c->slack, "the true one sums to 0");
        judge(c, largest_sum(c, t->ours, axis) > c->slack / 2, "this one does not");
    } else if (next(c, "the wrong elements are all ")) {
        c->at -= 4;
        where_all(c);
    } else if (next(c, "it is the same for every dy: dy is not used")) {
        judge(c, t->nonlinear, "dy is not used");
    } else if (next(c, "it is not linear in dy")) {
        judge(c, t->nonlinear, "not linear");
    } else if (next(c, "the forward's own matrix is applied to dy, not its transpose")) {
        judge(c, rows(c) == columns(c), "square");
        for (int64_t r = 0; r < rows(c) && rows(c) == columns(c); r++)
            for (int64_t k = 0; k < columns(c); k++)
                judge(c, same(c, ours(c, r, k), right(c, k, r)), "the forward's own matrix");
    } else if (next(c, "each element uses only its own dy: a sum")) {
        own_alone(c);
    } else if (next(c, "only ")) {
        dy_left_out(c, true);
    } else if (strncmp(begin, "dy[", 3) == 0) {
        dy_left_out(c, false);
    } else if (next(c, "of the dy summed into ")) {
        counts(c);
    } else if (next(c, "it is ") || next(c, "the summed term is ")) {
        claims_entries_are(c, 1, 0, "it is that");
        if (next(c, " instead of ")) claims_entries_are(c, 0, 1, "instead of that");
    } else if (next(c, "all but ")) {
        claims_entries_are(c, 0.5, 0.5, "all but that");
        judge(c, next(c, " has the wrong sign"), "the wrong sign");
    } else if (next(c, "the term ")) {
        claims_entries_are(c, -1, 1, "that term is missing");
        judge(c, next(c, " is missing"), "the term is missing");
    } else if (next(c, "dy is summed without its factor")) {
        without_factor(c);
    } else if (next(c, "dy has ")) {
        claims_dy_factor(c, false);
    } else if (next(c, "the dy of other elements has ")) {
        claims_dy_factor(c, true);
    } else if (next(c, "a sum runs along axis ")) {
        wrong_axis(c);
    } else if (strncmp(begin, t->x.name, strlen(t->x.name)) == 0) {
        uses(c);
    }
    judge(c, c->at > begin, "a known sentence");
}

const char *claims_false(const claims_truth *truth, const char *finding)
{
    reader c = {.t = truth, .at = finding};
    for (int64_t i = 0; i < truth->x.count * truth->y.count; i++)
        c.largest = fmax(c.largest, fabs(truth->right[i]));
    if (c.largest == 0)
        for (int64_t i = 0; i < truth->x.count * truth->y.count; i++)
            c.largest = fmax(c.largest, fabs(truth->ours[i]));
    c.slack = truth->tolerance * c.largest;
    while (*c.at && !c.wrong) {
        sentence(&c);
        if (!c.wrong) where(&c);
        if (*c.at && !next(&c, ": ")) judge(&c, false, "the end");
    }
    return c.wrong;
}
