/* test_gradcheck_numbers.c - numbers as fractions, columns of numbers as products of powers, random
 * numbers. */
#include "check_main.h"
#include "gradcheck/diagnose/diagnose.h"
#include "gradus/gradus.h"

#include <math.h>

/* What a factor is called: the simplest fraction of small numbers. */
TEST(fractions_have_names)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {{0.5, "1/2"},         {-2, "-2"},       {7.0 / 12, "7/12"},
                {64, "64"},           {63.5, ""},       {65, ""},
                {1.0 / 13, ""},       {0, ""},          {2.0 / 3, "2/3"},
                {0.5 + 3e-12, "1/2"}, {0.5 + 1e-10, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gd_text text = {""};
        const double found = gd_check_fraction(rows[i].value, 1e-11, &text);
        ck_assert_str_eq(text.text, rows[i].text);
        ck_assert_double_le(fabs(found - (*text.text ? rows[i].value : 0)), 1e-11);
    }
}

enum { POINTS = 5 }; /* the fewest that are enough */

/* The formula of x^p z^q a + x^r z^s b at so many points; "" where none was found. */
typedef struct column {
    double a;
    int p, q;
    double b;
    int r, s, terms;
    int64_t points;
    const char *unit, *formula;
} column;

static const column columns[] = {
    {1, 3, 0, 0, 0, 0, 1, POINTS, "", "x^3"},
    {1, 4, 0, 0, 0, 0, 1, POINTS, "", ""},
    {1, -2, 0, 0, 0, 0, 1, POINTS, "", "1/x^2"},
    {1, -3, 0, 0, 0, 0, 1, POINTS, "", ""},
    {1, 2, 2, 0, 0, 0, 1, POINTS, "", ""},
    {-2.0 / 3, 1, -2, 0, 0, 0, 1, POINTS, "dy", "-2/3 dy x/z^2"},
    {1, 1, 0, 0, 0, 0, 1, POINTS - 1, "", ""},
    {1, -1, -1, 0, 0, 0, 1, POINTS, "dy", "dy/(x z)"},
    {1, 1, 0, -0.5, 0, 2, 2, POINTS, "dy", "dy x - 1/2 dy z^2"},
    {1, 1, 0, -0.5, 0, 2, 1, POINTS, "dy", ""},
};

LOOP_TEST(columns_have_formulas, sizeof columns / sizeof *columns)
{
    const column *c = &columns[_i];
    double x[POINTS] = {0.7, -1.3, 2.1, 0.4, -0.9}, z[POINTS] = {1.2, 0.3, -0.8, 1.9, 0.6};
    double target[POINTS];
    gd_text text = {""};
    gd_checker checker = {.ctx = gd_context_create(NULL)};
    gd_points at = {.count = c->points, .symbols = 2, .name = {"x", "z"}, .value = {x, z}};
    for (int i = 0; i < POINTS; i++)
        target[i] =
            c->a * pow(x[i], c->p) * pow(z[i], c->q) + c->b * pow(x[i], c->r) * pow(z[i], c->s);
    ck_assert_int_eq(gd_check_formula(&checker, &at, target, 1e-9, c->terms, c->unit, &text),
                     *c->formula != 0);
    ck_assert_str_eq(text.text, c->formula);
    gd_check_free(&checker);
    gd_context_free(checker.ctx);
}

/* From two numbers of 64 bits each, which are two words of Philox. */
TEST(normal_numbers_are_those_of_box_and_muller)
{
    enum { COUNT = 20 };
    double value[COUNT];
    gd_check_normal(value, COUNT, 5, 9);
    for (int i = 0; i < COUNT; i++) {
        uint32_t word[4];
        gd_philox(5, 9, 4 * (uint64_t)i, 4, word);
        const double u = ldexp(word[0], -32) + ldexp(word[1], -64);
        const double angle = 2 * acos(-1) * (ldexp(word[2], -32) + ldexp(word[3], -64));
        ck_assert_double_eq_tol(value[i], sqrt(-2 * log(u)) * cos(angle), 1e-13);
    }
}

CHECK_MAIN("gradcheck's numbers")
