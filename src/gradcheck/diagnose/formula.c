/* formula.c - finds a short formula, such as "dy - dy y^2", for a column of numbers, given the
 * values of symbols at each point. Products of powers are tried from the simplest on, first single
 * ones, then pairs, by least squares; a formula is accepted if it holds at every point. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/diagnose/diagnose.h"
#include "platform/number.h"

enum { LOWEST = -2, HIGHEST = 3, PRODUCTS = 256, FEWEST = 5 };

typedef struct gd_product {
    int power[GD_SYMBOLS];
    double *value; /* [points] */
    double largest;
} gd_product;

double gd_check_fraction(double x, double tolerance, gd_text *text)
{
    for (int q = 1; q <= 12; q++) {
        double p = round(x * q);
        if (p == 0 || fabs(p) > 64 || !(fabs(x - p / q) <= tolerance)) continue;
        gd_os_print(text->text, sizeof text->text, q == 1 ? "%g" : "%g/%d", p, q);
        return p / q;
    }
    return 0;
}

gd_text gd_check_factor(const gd_argument *a, double factor, double tolerance)
{
    gd_text text;
    for (int axis = 0; axis < a->spec.ndim; axis++) {
        const double n = (double)a->spec.shape[axis];
        const struct {
            double value;
            const char *text;
        } known[] = {{n, "%g, the size of axis %d"},
                     {1 / n, "1/%g, the size of axis %d"},
                     {n / (n - 1), "n/(n - 1), n = %g the size of axis %d"}};
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            /* With a small n the match may be a coincidence. */
            if (n < (i == 2 ? 13 : 5) || !(fabs(factor - known[i].value) <= tolerance)) continue;
            gd_os_print(text.text, sizeof text.text, known[i].text, n, axis);
            return text;
        }
    }
    if (gd_check_fraction(factor, tolerance, &text) != 0) return text;
    for (int digits = 3; digits <= 15; digits++) { /* as many as were measured */
        const double unit = pow(10, digits - 1 - floor(log10(fabs(factor))));
        gd_os_print(text.text, sizeof text.text, "%.*g", digits, factor);
        if (fabs(round(factor * unit) / unit - factor) <= tolerance) break;
    }
    return text;
}

/* ---- The products ------------------------------------------------------------------------- */

static void next_powers(int *power, int symbols)
{
    int k = 0;
    while (k < symbols && power[k] == HIGHEST) power[k++] = LOWEST;
    if (k < symbols) power[k]++;
}

/* Fills p->value. False where it is not finite everywhere. */
static bool evaluate(const gd_points *at, gd_product *p)
{
    p->largest = 0;
    for (int64_t i = 0; i < at->count; i++) {
        double v = at->weight ? at->weight[i] : 1;
        for (int k = 0; k < at->symbols; k++)
            if (p->power[k]) v *= pow(at->value[k][i], p->power[k]);
        if (!isfinite(v)) return false;
        p->value[i] = v;
        p->largest = fmax(p->largest, fabs(v));
    }
    return p->largest > 0;
}

/* The products whose absolute exponents sum to at most HIGHEST, the simplest first. */
static int make_products(gd_checker *c, const gd_points *at, gd_product *list)
{
    int count = 0, all = 1;
    for (int k = 0; k < at->symbols; k++) all *= HIGHEST - LOWEST + 1;
    for (int size = 0; size <= HIGHEST; size++) {
        int power[GD_SYMBOLS] = {LOWEST, LOWEST, LOWEST, LOWEST, LOWEST};
        for (int i = 0; i < all; i++, next_powers(power, at->symbols)) {
            int sum = 0;
            for (int k = 0; k < at->symbols; k++) sum += power[k] < 0 ? -power[k] : power[k];
            if (sum != size || count == PRODUCTS) continue;
            gd_product *p = &list[count];
            memcpy(p->power, power, sizeof power);
            if (!p->value) p->value = gd_check_numbers(c, at->count);
            if (p->value && evaluate(at, p)) count++;
        }
    }
    return count;
}

/* ---- Fits --------------------------------------------------------------------------------- */

void gd_check_add_point(gd_fit *fit, double f, double g, double e)
{
    fit->ff += f * f, fit->fg += f * g, fit->gg += g * g;
    fit->fe += f * e, fit->ge += g * e;
}

void gd_check_solve(gd_fit *fit, bool both)
{
    const double det = fit->ff * fit->gg - fit->fg * fit->fg; /* if it is 0, nothing fits */
    fit->a = both ? (fit->fe * fit->gg - fit->ge * fit->fg) / det : fit->fe / fit->ff;
    fit->b = both ? (fit->ge * fit->ff - fit->fe * fit->fg) / det : 0;
    if (!both && fit->ff == 0) fit->a = 0;
}

/* Whether the target is a pa + b pb, or a pa, with simple fractions a and b. */
static bool fits(const gd_points *at, const double *target, double tolerance, const gd_product *pa,
                 const gd_product *pb, double *a, double *b)
{
    gd_fit fit = {0};
    gd_text text;
    for (int64_t i = 0; i < at->count; i++)
        gd_check_add_point(&fit, pa->value[i], pb ? pb->value[i] : 0, target[i]);
    if (pb && !(fit.ff * fit.gg - fit.fg * fit.fg > 1e-6 * fit.ff * fit.gg))
        return false; /* nearly linearly dependent */
    gd_check_solve(&fit, pb);
    *a = gd_check_fraction(fit.a, tolerance / pa->largest, &text);
    *b = pb ? gd_check_fraction(fit.b, tolerance / pb->largest, &text) : 0;
    if (*a == 0 || (pb && *b == 0)) return false;
    for (int64_t i = 0; i < at->count; i++) {
        double sum = *a * pa->value[i] + (pb ? *b * pb->value[i] : 0);
        if (!(fabs(sum - target[i]) <= tolerance)) return false;
    }
    return true;
}

/* ---- Words -------------------------------------------------------------------------------- */

/* " x^2 z", the powers with exponents of one sign; returns their number. */
static int append_powers(gd_text *text, const gd_points *at, const int *power, int sign)
{
    int count = 0;
    for (int k = 0; k < at->symbols; k++) {
        const int p = sign * power[k];
        char exponent[16] = "";
        if (p <= 0) continue;
        if (p > 1) snprintf(exponent, sizeof exponent, "^%d", p);
        const char *space = count++ || (sign > 0 && *text->text) ? " " : "";
        gd_check_write(text, "%s%s%s", space, at->name[k], exponent);
    }
    return count;
}

static gd_text product_text(const gd_points *at, const gd_product *p, double factor,
                            const char *unit)
{
    gd_text text = {""}, number = {""}, below = {""};
    if (fabs(factor) != 1) gd_check_fraction(fabs(factor), 1e-12, &number);
    gd_check_write(&text, "%s%s%s", number.text, *number.text && *unit ? " " : "", unit);
    append_powers(&text, at, p->power, 1);
    if (!*text.text) gd_check_write(&text, "1");
    const int count = append_powers(&below, at, p->power, -1);
    if (count) gd_check_write(&text, count > 1 ? "/(%s)" : "/%s", below.text);
    return text;
}

bool gd_check_formula(gd_checker *c, const gd_points *at, const double *target, double tolerance,
                      int terms, const char *unit, gd_text *text)
{
    gd_product *list = gd_check_allocate(c, PRODUCTS, sizeof *list);
    const int count = list ? make_products(c, at, list) : 0;
    double a = 0, b = 0;
    int64_t points = 0; /* others would fit anything */
    for (int64_t i = 0; i < at->count; i++) points += fabs(target[i]) > 20 * tolerance;
    if (points < FEWEST) return false;
    *text = (gd_text){""};
    for (int j = 0; j < (terms > 1 ? count : 1); j++) { /* each alone, then pairs */
        const gd_product *second = j ? &list[j] : NULL;
        for (int i = 0; i < (j ? j : count); i++) {
            if (!fits(at, target, tolerance, &list[i], second, &a, &b)) continue;
            const gd_text first = product_text(at, &list[i], a, unit);
            gd_check_write(text, "%s%s", a < 0 ? "-" : "", first.text);
            if (second)
                gd_check_write(text, b < 0 ? " - %s" : " + %s",
                               product_text(at, second, b, unit).text);
            return true;
        }
    }
    return false;
}
