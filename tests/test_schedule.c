/* test_schedule.c - learning rates at the steps where something begins, ends or bends. */
#include "check_main.h"
#include "gradus/optim.h"

#include <math.h>

START_TEST(rates)
{
    static const struct {
        gd_schedule schedule;
        int64_t step;
        double rate;
    } rows[] = {
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 0, 0}, 0, 2},
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 0, 0}, 1000, 2},
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 4, 0}, 0, 0.5},
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 4, 0}, 3, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0}, 0, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0}, 5, 1.5},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0}, 10, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0}, 11, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 2, 0}, 1, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 2, 0}, 2, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 2, 0}, 6, 1.5},
        {{GD_SCHEDULE_COSINE, 2, 0, 101, 0, 0}, 0, 2},
        {{GD_SCHEDULE_COSINE, 2, 0, 101, 0, 0}, 50, 1},
        {{GD_SCHEDULE_COSINE, 2, 0, 101, 0, 0}, 25, 1.7071067811865475},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 0, 0}, 100, 0.5},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 10, 0}, 0, 0.2},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 10, 0}, 55, 1.25},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 10, 0}, 5000, 0.5},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20}, 4, 1},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20}, 50, 2},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20}, 79, 2},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20}, 80, 1.9},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20}, 89, 1},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20}, 99, 0},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 0}, 99, 2},
        {{GD_SCHEDULE_COSINE, 2, 1, 5, 10, 0}, 3, 0.8}, /* the run ends in its warm-up */
        {{GD_SCHEDULE_COSINE, 2, 1, 5, 10, 0}, 5, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 1, 0, 0}, 0, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 0, 0, 0}, 0, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0}, -5, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double rate = gd_schedule_rate(&rows[i].schedule, rows[i].step);
        ck_assert_msg(fabs(rate - rows[i].rate) < 1e-12, "row %zu: rate %g, wanted %g", i, rate,
                      rows[i].rate);
    }
    ck_assert(isnan(gd_schedule_rate(NULL, 0)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *cases = tcase_create("schedule");
    tcase_add_test(cases, rates);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
