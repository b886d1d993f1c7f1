/* expression.c - an expression of the reader's on the library's tape. The page has parsed it; what
 * comes in is one tensor a line, in the order of their numbers, "leaf w 1 0 0.5" (its name, whether
 * it requires a gradient, the count of its axes and their sizes, its values) or "mul 0 1": an op of
 * the numbers before. Only the ops of the table are linked: expression_registry.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"
#include "print.h"
#include "spy.h"

enum { TEXT = 16384, TENSORS = 64, AXES = 2, ELEMENTS = SPY_SHOWN };

static char text[TEXT];

EXPORT(expression_text) char *expression_text(void)
{
    return text;
}

enum { NUMBERS = 8 };

static gd_tensor *softmax_last(gd_tensor *x)
{
    return gd_softmax(x, -1);
}

static gd_tensor *permute(gd_tensor *x, const int *numbers, int count)
{
    return count == gd_tensor_ndim(x) ? gd_permute(x, numbers) : NULL;
}

static gd_tensor *reshape(gd_tensor *x, const int *numbers, int count)
{
    int64_t shape[NUMBERS];
    for (int d = 0; d < count; d++) shape[d] = numbers[d];
    return gd_reshape(x, count, shape);
}

static gd_tensor *slice(gd_tensor *x, const int *numbers, int count)
{
    return count == 3 ? gd_slice(x, numbers[0], numbers[1], numbers[2]) : NULL;
}

/* Ops of one and two tensors, of one with numbers, and of one along axes: all of them
 * without numbers. */
static const struct {
    const char *name;
    gd_tensor *(*one)(gd_tensor *);
    gd_tensor *(*two)(gd_tensor *, gd_tensor *);
    gd_tensor *(*numbers)(gd_tensor *, const int *, int);
    gd_tensor *(*along)(gd_tensor *, const int *, int, bool);
} ops[] = {
    {"neg", .one = gd_neg},          {"exp", .one = gd_exp},
    {"log", .one = gd_log},          {"sqrt", .one = gd_sqrt},
    {"sin", .one = gd_sin},          {"cos", .one = gd_cos},
    {"tanh", .one = gd_tanh},        {"sigmoid", .one = gd_sigmoid},
    {"relu", .one = gd_relu},        {"abs", .one = gd_abs},
    {"sign", .one = gd_sign},        {"floor", .one = gd_floor},
    {"erf", .one = gd_erf},          {"softmax", .one = softmax_last},
    {"add", .two = gd_add},          {"sub", .two = gd_sub},
    {"mul", .two = gd_mul},          {"div", .two = gd_div},
    {"matmul", .two = gd_matmul},    {"permute", .numbers = permute},
    {"reshape", .numbers = reshape}, {"slice", .numbers = slice},
    {"sum", .along = gd_sum},        {"mean", .along = gd_mean},
    {"max", .along = gd_max},        {"logsumexp", .along = gd_logsumexp},
};

static gd_tensor *make_leaf(gd_context *ctx, char *rest)
{
    const char *name = strtok(rest, " ");
    const bool wanted = name && atoi(strtok(NULL, " "));
    int64_t shape[AXES] = {1, 1}, count = 1;
    double values[ELEMENTS];
    const char *word = strtok(NULL, " ");
    const int axes = word ? atoi(word) : AXES + 1;
    for (int d = 0; d < axes && d < AXES && (word = strtok(NULL, " ")); d++) {
        shape[d] = atoi(word);
        count *= shape[d];
    }
    if (axes > AXES || count < 1 || count > ELEMENTS) return NULL;
    for (int64_t i = 0; i < count; i++) values[i] = (word = strtok(NULL, " ")) ? atof(word) : 0;
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT64, axes, shape, values);
    gd_tensor_set_requires_grad(t, wanted);
    gd_tensor_set_name(t, name);
    return t;
}

/* "mul 0 1", "sum 4 1": an op, the tensors that it reads, and its other numbers. */
static gd_tensor *apply(gd_tensor *const *made, int count, char *line)
{
    const char *name = strtok(line, " "), *word;
    const size_t table = sizeof ops / sizeof *ops;
    gd_tensor *read[3] = {NULL};
    int numbers[NUMBERS], given = 0;
    size_t i = 0;
    while (name && i < table && strcmp(ops[i].name, name)) i++;
    const bool where = name && !strcmp(name, "where");
    if (i == table && !where) return NULL;
    for (int k = 0, tensors = where ? 3 : ops[i].two ? 2 : 1; k < tensors; k++) {
        const int at = (word = strtok(NULL, " ")) ? atoi(word) : -1;
        if (at < 0 || at >= count) return NULL;
        read[k] = made[at];
    }
    if (where) return gd_where(gd_cast(read[0], GD_INT32), read[1], read[2]);
    if (ops[i].one) return ops[i].one(read[0]);
    if (ops[i].two) return ops[i].two(read[0], read[1]);
    while (given < NUMBERS && (word = strtok(NULL, " "))) numbers[given++] = atoi(word);
    return ops[i].numbers ? ops[i].numbers(read[0], numbers, given)
                          : ops[i].along(read[0], given ? numbers : NULL, given, false);
}

/* Prints "is 3 n2" for tensor 3, made by node 2, then what spy_tape prints of the last one's
 * backward; or "error 3 ..", what the library says of tensor 3. */
EXPORT(expression_run) void expression_run(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    gd_tensor *made[TENSORS];
    const char *wrong = NULL;
    int count = 0;
    for (char *line = text, *next; *line && !wrong; line = next) {
        char *const end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        if (end) *end = 0;
        gd_tensor *t =
            strncmp(line, "leaf ", 5) ? apply(made, count, line) : make_leaf(ctx, line + 5);
        if (!t || gd_tensor_count(t) > ELEMENTS || count == TENSORS) {
            wrong = gd_error(ctx) ? gd_error(ctx) : "at most 64 tensors of 1 to 64 elements";
        } else {
            if (t->node) printf("is %d n%lld\n", count, (long long)t->node->index);
            made[count++] = t;
        }
    }
    if (count && !wrong && spy_tape(made[count - 1], SPY_SHOWN, gd_backward)) {
        wrong = gd_error(ctx);
        count--;
    }
    if (wrong) printf("error %d %s\n", count, wrong);
    gd_context_free(ctx);
}
