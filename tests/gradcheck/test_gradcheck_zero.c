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
                            .inputs = 1,
                            .input_names = {"x"},
                            .outputs = 1,
                            .shape = shape_like_x,
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

TEST(text_has_a_line_for_the_input)
{
    ck_assert_int_eq(vacuous_lines((settings){0}, &still), 1);
    const char *said = strstr(output, "VACUOUS  its gradient is zero in every case\n");
    ck_assert_ptr_nonnull(said);
    ck_assert_ptr_null(strstr(said + 1, "VACUOUS"));
}

TEST(a_record_may_say_that_its_gradient_is_zero)
{
    gd_op step = still;
    step.zero_gradient = true;
    ck_assert_int_eq(vacuous_lines((settings){0}, &step), 0);
}

static const char *last_line(void)
{
    const char *line = output, *end;
    while ((end = json_end(line)) && *json_space(end)) line = json_space(end);
    ck_assert_msg(end != NULL, "not JSON: %s", line);
    return line;
}

TEST(json_has_a_line_for_the_input)
{
    ck_assert_int_eq(vacuous_lines((settings){.json = true, .check.seed = 4}, &still), 1);
    const char *line = last_line();
    ck_assert(json_is(json_member(line, "op"), "still"));
    ck_assert(json_is(json_member(line, "case"), ""));
    ck_assert(json_is(json_member(line, "verdict"), "VACUOUS"));
    ck_assert(json_is(json_member(line, "dtype"), "float64"));
    ck_assert(json_is(json_member(line, "message"), "its gradient is zero in every case"));
    ck_assert_int_eq(atoi(json_member(line, "seed")), 4);
    const char *in = json_item(json_member(line, "inputs"), 0);
    ck_assert_ptr_nonnull(in);
    ck_assert(json_is(json_member(in, "name"), "x"));
    ck_assert(json_is(json_member(in, "verdict"), "VACUOUS"));
}

TEST(a_single_case_may_be_zero)
{
    ck_assert_int_eq(vacuous_lines((settings){.json = true, .only_case = "5"}, &still), 0);
    ck_assert(json_is(json_member(last_line(), "verdict"), "PASS"));
    ck_assert_int_eq(vacuous_lines((settings){.check.only_input = "x"}, &still), 0);
}

TEST(no_case_is_vacuous)
{
    gd_op bare = still;
    bare.case_count = 0;
    ck_assert_int_eq(vacuous_lines((settings){0}, &bare), 1);
    ck_assert_ptr_nonnull(strstr(output, "VACUOUS  the op has no cases\n"));
    ck_assert_int_eq(vacuous_lines((settings){.json = true}, &bare), 1);
    ck_assert(json_is(json_member(output, "op"), "still"));
    ck_assert(json_is(json_member(output, "verdict"), "VACUOUS"));
    ck_assert(json_is(json_member(output, "message"), "the op has no cases"));
    ck_assert_ptr_null(json_item(json_member(output, "inputs"), 0));
}

CHECK_MAIN("gradcheck_zero")
