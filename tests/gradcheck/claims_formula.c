/* claims_formula.c - the truth of formulas in gradcheck's sentences: products of powers of inputs,
 * and numbers as fractions. */
#include "claims_reader.h"

/* The dy that element r of x has. */
static int64_t column_of(const reader *c, int64_t r)
{
    for (int64_t k = 0; k < columns(c); k++)
        if (ours(c, r, k) != 0 || right(c, r, k) != 0) return k;
    return 0;
}

/* An input broadcast over y, or y, at element k of y; or over x, at an element of x. */
static double symbol(reader *c, int64_t k)
{
    const claims_truth *t = c->t;
    const claims_array *over = c->by_row ? &t->x : &t->y;
    if (next(c, "exp(y)")) return exp(t->y.value[k]);
    for (int i = 0; i < t->inputs; i++) {
        const claims_array *a = &t->input[i];
        const size_t length = a->name ? strlen(a->name) : 0;
        if (!a->value || !length || strncmp(c->at, a->name, length) != 0) continue;
        const char after = c->at[length];
        if ((after >= 'a' && after <= 'z') || (after >= '0' && after <= '9')) continue;
        c->at += length;
        int64_t at = 0;
        for (int axis = 0; axis < a->ndim; axis++)
            at = at * a->shape[axis] +
                 (a->shape[axis] == 1 ? 0 : index_of(over, k, over->ndim - a->ndim + axis));
        return a->value[at];
    }
    if (next(c, "y")) return t->y.value[c->by_row ? column_of(c, k) : k];
    judge(c, false, "a symbol");
    return NAN;
}

static double power(reader *c, int64_t k)
{
    const double base = symbol(c, k);
    return next(c, "^") ? pow(base, number(c)) : base;
}

static bool is_symbol(const reader *c)
{
    const char first = *c->at;
    return first >= 'a' && first <= 'z' && strncmp(c->at, "is ", 3) != 0 &&
           strncmp(c->at, "has ", 4) != 0 && strncmp(c->at, "instead", 7) != 0;
}

/* "2/3 dy x^2/(y z)" */
static double term(reader *c, int64_t k)
{
    double value = 1;
    if (*c->at >= '0' && *c->at <= '9') value = number(c);
    for (;;) {
        const char *before = c->at;
        next(c, " ");
        if (!is_symbol(c) || c->wrong) {
            c->at = before;
            break;
        }
        if (strncmp(c->at, "dy", 2) == 0 && (c->at[2] < 'a' || c->at[2] > 'z'))
            next(c, "dy");
        else
            value *= power(c, k);
    }
    if (!next(c, "/")) return value;
    if (!next(c, "(")) return value / power(c, k);
    while (!next(c, ")") && !c->wrong) {
        value /= power(c, k);
        next(c, " ");
    }
    return value;
}

/* The value of a formula at element k of y; it is read. */
static double formula(reader *c, int64_t k)
{
    double sum = next(c, "-") ? -term(c, k) : term(c, k);
    if (next(c, " - ")) return sum - term(c, k);
    return next(c, " + ") ? sum + term(c, k) : sum;
}

/* Whether each dy contributes to one element only. */
static bool one_for_each_dy(const reader *c)
{
    for (int64_t k = 0; k < columns(c); k++) {
        int64_t some = 0;
        for (int64_t r = 0; r < rows(c); r++) some += ours(c, r, k) != 0 || right(c, r, k) != 0;
        if (some > 1) return false;
    }
    return true;
}

/* Whether all entries that are not 0 are those of the formula: ours times a, plus the right
 * ones times b. */
void claims_entries_are(reader *c, double a, double b, const char *sentence)
{
    const char *begin = c->at;
    c->by_row = !one_for_each_dy(c);
    const int64_t outer = c->by_row ? rows(c) : columns(c), inner = rows(c) + columns(c) - outer;
    for (int64_t i = 0; i < outer; i++) {
        c->at = begin;
        const double wanted = formula(c, i);
        for (int64_t m = 0; m < inner; m++) {
            const double o = ours(c, c->by_row ? i : m, c->by_row ? m : i);
            const double n = right(c, c->by_row ? i : m, c->by_row ? m : i);
            judge(c, (o == 0 && n == 0) || same(c, a * o + b * n, wanted), sentence);
        }
    }
    c->by_row = false;
}

/* "7/10", "64, the size of axis 1", "n/(n - 1), n = 64 the size of axis 1", a number */
bool claims_factor_number(reader *c, double *factor)
{
    const claims_array *x = &c->t->x;
    if (next(c, "n/(n - 1), n = ")) {
        const double n = number(c);
        *factor = n / (n - 1);
        if (!next(c, " the size of axis ")) return false;
        const int axis = (int)number(c);
        return axis < x->ndim && (double)x->shape[axis] == n;
    }
    char *end;
    (void)strtod(c->at, &end);
    if (end == c->at) return false;
    *factor = number(c);
    if (!next(c, ", the size of axis ")) return true;
    const int axis = (int)number(c);
    const double n = axis < x->ndim ? (double)x->shape[axis] : 0;
    return *factor == n || fabs(*factor * n - 1) < 1e-9;
}

static bool of_others(bool others, int64_t r, int64_t k)
{
    return !others || r != k;
}

/* Whether the entries of each row or column of x, or of each index along an axis of dy, are the
 * true ones times a factor of their own, to within the tolerance of what is largest: of all true
 * ones, or, where the factor is large, of what it makes of those of its group. */
bool claims_one_factor(const reader *c, int by, bool others)
{
    const claims_array *x = &c->t->x;
    const int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1, all = rows(c) * columns(c);
    double *sum = calloc((size_t)(3 * all) + 1, sizeof *sum);
    bool is = true;
    for (int64_t i = 0; i < 2 * all && is; i++) {
        const int64_t r = i % all / columns(c), k = i % columns(c);
        if (!of_others(others, r, k)) continue;
        const double o = ours(c, r, k), w = right(c, r, k);
        double *of = sum + 3 * (by == EACH_ROW      ? r / n
                                : by == EACH_COLUMN ? r % n
                                                    : index_of(&c->t->y, k, by));
        const double factor = of[1] > 0 ? of[0] / of[1] : 0;
        if (i < all)
            of[0] += o * w, of[1] += w * w, of[2] = fmax(of[2], fabs(w));
        else
            is = fabs(o - factor * w) <= c->t->tolerance * fmax(c->largest, fabs(factor) * of[2]);
    }
    free(sum);
    return is;
}

/* "the wrong sign", "an extra factor ...", of all dy or those of other elements */
void claims_dy_factor(reader *c, bool others)
{
    double factor = -1;
    const char *begin;
    if (next(c, "an extra factor for each index along its axis ")) {
        judge(c, claims_one_factor(c, (int)number(c), others), "a factor for each");
        return;
    }
    if (!next(c, "the wrong sign")) judge(c, next(c, "an extra factor "), "a factor");
    begin = c->at;
    bool numeric = begin[-1] == 'n' || claims_factor_number(c, &factor);
    if (numeric && (*c->at == ' ' && strncmp(c->at, " with", 5) != 0)) numeric = false;
    if (numeric && *c->at == '/') numeric = false;
    bool by[2] = {true, true}; /* dy's element, or x's */
    const char *end = c->at;
    for (int side = 0; side < (numeric ? 1 : 2); side++)
        for (int64_t i = 0; i < (side ? rows(c) : columns(c)); i++) {
            c->at = begin;
            if (!numeric && side && !alike(c)) {
                by[1] = false;
                continue;
            }
            if (!numeric) factor = formula(c, i), end = c->at;
            for (int64_t m = 0; m < (side ? columns(c) : rows(c)); m++) {
                const int64_t r = side ? i : m, k = side ? m : i;
                if (ours(c, r, k) == 0 && right(c, r, k) == 0) continue;
                if (of_others(others, r, k) && !(fabs(ours(c, r, k) - factor * right(c, r, k)) <=
                                                 c->slack * fmax(1, fabs(factor))))
                    by[side] = false;
            }
        }
    c->at = end;
    judge(c, by[0] || (!numeric && by[1]), "an extra factor");
}
