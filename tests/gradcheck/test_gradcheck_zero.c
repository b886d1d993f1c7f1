/* test_gradcheck_zero.c - gradus-gradcheck on an op whose gradient is zero in every case, or which
 * has no case: the library has none, so the program is called from inside. */
#define main gradcheck_main
#include "src/gradcheck/main.c"
#undef main

#include <unistd.h>

#include "check_main.h"
#include "gradus/gradus.h"
#include "json.h"

static gd_status fill(gd_tensor *t, double value)
{
    for (int64_t i = 0; i < gd_tensor_count(t); i++) ((double *)gd_tensor_data(t))[i] = value;
    return GD_OK;
}

static gd_status still_forward(const gd_call *call)
{
    return fill(call->output[0], 3);
}

static gd_status still_backward(const gd_call *call)
{
    return call->accumulate[0] ? GD_OK : fill(call->dinput[0], 0);
}

static const gd_case still_cases[] = {{"one", NULL, GD_INPUTS({GD_DIMS(1)})},
                                      {"5", NULL, GD_INPUTS({GD_DIMS(5)})}};

static const gd_op still = {.name = "still",
                            .signature = "x[...] -> y[...]",
                            .forward = {still_forward, NULL},
                            .backward = {still_backward, NULL},
                            GD_CASES(still_cases)};

static char output[1 << 16];

/* What run_op prints, into `output`; returns how many lines are vacuous. */
static int64_t vacuous_lines(settings s, const gd_op *op)
{
    s.dtype = GD_FLOAT64;
    s.check.dtype = &s.dtype;
    s.seeds = 1;
    gd_context *ctx = gd_context_create(NULL);
    tally t = {0};
    FILE *file = tmpfile();
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    const bool ran = run_op(ctx, &s, op, &t);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    rewind(file);
    output[fread(output, 1, sizeof output - 1, file)] = '\0';
    fclose(file);
    gd_context_free(ctx);
    ck_assert(ran);
    return t.of[GD_VERDICT_VACUOUS];
}

static const struct {
    settings s;
    int cases;
    bool zero_gradient; /* says the record */
    int vacuous;
    const char *last; /* what the last line holds */
} outcomes[] = {
    {{.json = false}, 2, false, 1, "VACUOUS  the gradient of x is zero in every case\n"},
    {{.json = false}, 2, true, 0, "PASS  5 compared"},
    {{.check.only_input = "x"}, 2, false, 0, "PASS  5 compared"},
    {{.json = true, .only_case = "5"}, 2, false, 0, "\"case\": \"5\", \"verdict\": \"PASS\""},
    {{.json = true, .check.seed = 4},
     2,
     false,
     1,
     "{\"op\": \"still\", \"case\": \"\", \"verdict\": \"VACUOUS\", \"device\": \"cpu\", "
     "\"dtype\": \"float64\", \"order\": 0, \"seed\": 4, \"step\": 0, \"rtol\": 0, \"atol\": 0, "
     "\"message\": \"the gradient of x is zero in every case\", \"inputs\": []}\n"},
    {{.json = false}, 0, false, 1, "VACUOUS  the op has no cases\n"},
    {{.json = true}, 0, false, 1, "\"message\": \"the op has no cases\", \"inputs\": []}\n"},
};

LOOP_TEST(it_is_vacuous_unless_that_is_by_design, sizeof outcomes / sizeof *outcomes)
{
    gd_op op = still;
    op.case_count = outcomes[_i].cases;
    op.zero_gradient = outcomes[_i].zero_gradient;
    ck_assert_int_eq(vacuous_lines(outcomes[_i].s, &op), outcomes[_i].vacuous);
    const char *line = output, *end;
    while ((end = strchr(line, '\n')) && end[1]) line = end + 1;
    ck_assert_msg(strstr(line, outcomes[_i].last) != NULL, "%s", output);
    for (line = output; outcomes[_i].s.json && *line; line = json_space(json_end(line)))
        ck_assert_msg(json_end(line) != NULL, "not JSON: %s", line);
}

CHECK_MAIN("gradcheck_zero")
