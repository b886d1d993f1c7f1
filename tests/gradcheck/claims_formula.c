/* claims_formula.c - the truth of formulas in gradcheck's sentences: products of powers of inputs, and
 * numbers as fractions. */
#include "claims_reader.h"

/* An input broadcast over y, or y, at element k of y. */
static double symbol(reader *c, int64_t k)
{
    const claims_truth *t = c->t;
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
                 (a->shape[axis] == 1 ? 0 : index_of(&t->y, k, t->y.ndim - a->ndim + axis));
        return a->value[at];
    }
    if (next(c, "y")) return t->y.value[k];
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
           strncmp(c->at, "instead", 7) != 0;
}

/* "2/3 dy x^2/(y z)" */
static double term(reader *c, int64_t k)
{
    double value = 1;
    if (*c->at >= '0' && *c->at <= '9') value = number(c);
    for (;;) {
        const char *before = c->at;
        next(c, " ");
        if (!is_symbol(c)) {
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

/* Whether all entries that are not 0 are those of the formula: of `j`, or of right - ours. */
void claims_entries_are(reader *c, const double *j, const char *sentence)
{
    const char *begin = c->at;
    for (int64_t k = 0; k < columns(c); k++) {
        c->at = begin;
        const double wanted = formula(c, k);
        for (int64_t r = 0; r < rows(c); r++) {
            if (ours(c, r, k) == 0 && right(c, r, k) == 0) continue;
            const double is = j ? j[r * columns(c) + k] : right(c, r, k) - ours(c, r, k);
            judge(c, same(c, is, wanted), sentence);
        }
    }
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

/* "the wrong sign", "an extra factor ...", of all dy or those of other elements */
void claims_dy_factor(reader *c, bool others)
{
    double factor = -1;
    const char *begin;
    if (next(c, "an extra factor for each index along its axis ")) {
        const int axis = (int)number(c);
        for (int64_t i = 0; i < c->t->y.shape[axis]; i++) {
            double an = 0, nn = 0;
            for (int pass = 0; pass < 2; pass++)
                for (int64_t k = 0; k < columns(c); k++)
                    for (int64_t r = 0; r < rows(c); r++) {
                        if (index_of(&c->t->y, k, axis) != i || !of_others(others, r, k)) continue;
                        const double o = ours(c, r, k), w = right(c, r, k);
                        if (!pass) an += o * w, nn += w * w;
                        if (pass)
                            judge(c, same(c, o, nn > 0 ? an / nn * w : 0), "a factor for each");
                    }
        }
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
