/* expression.c - an expression of the reader's on the library's tape. The page has parsed it; what comes
 * in is one tensor a line, in the order of their numbers, "leaf w 1 0 0.5" (its name, whether it requires a
 * gradient, the count of its axes and their sizes, its values) or "mul 0 1": an op of the numbers before.
 * Only the ops of the table are linked: expression_registry.c. */
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

static gd_tensor *gd_softmax_last(gd_tensor *x)
{
    return gd_softmax(x, -1);
}

static gd_tensor *gd_transposed(gd_tensor *x)
{
    return gd_transpose(x, 0, 1);
}

static gd_tensor *gd_logsumexp_all(gd_tensor *x)
{
    return gd_logsumexp(x, NULL, 0, false);
}

static const struct {
    const char *name;
    gd_tensor *(*one)(gd_tensor *);
    gd_tensor *(*two)(gd_tensor *, gd_tensor *);
} ops[] = {
    {"neg", gd_neg, NULL},
    {"exp", gd_exp, NULL},
    {"log", gd_log, NULL},
    {"sqrt", gd_sqrt, NULL},
    {"sin", gd_sin, NULL},
    {"cos", gd_cos, NULL},
    {"tanh", gd_tanh, NULL},
    {"sigmoid", gd_sigmoid, NULL},
    {"relu", gd_relu, NULL},
    {"abs", gd_abs, NULL},
    {"sum", gd_sum_all, NULL},
    {"mean", gd_mean_all, NULL},
    {"logsumexp", gd_logsumexp_all, NULL},
    {"softmax", gd_softmax_last, NULL},
    {"transpose", gd_transposed, NULL},
    {"add", NULL, gd_add},
    {"sub", NULL, gd_sub},
    {"mul", NULL, gd_mul},
    {"div", NULL, gd_div},
    {"matmul", NULL, gd_matmul},
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

static gd_tensor *apply(gd_tensor *const *made, int count, char *line)
{
    char name[16];
    int a = 0, b = 0;
    const int words = sscanf(line, "%15s %d %d", name, &a, &b);
    if (words < 2 || a < 0 || a >= count || b < 0 || b >= count) return NULL;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (strcmp(ops[i].name, name)) continue;
        return ops[i].one ? ops[i].one(made[a]) : ops[i].two(made[a], made[b]);
    }
    return NULL;
}

/* Prints "is 3 n2" for tensor 3, made by node 2, then what spy_tape prints of the last one's backward; or
 * "error 3 ..", what the library says of tensor 3. */
EXPORT(expression_run) void expression_run(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    gd_tensor *made[TENSORS];
    int count = 0;
    for (char *line = text, *next; *line && count < TENSORS; line = next) {
        char *const end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        if (end) *end = 0;
        gd_tensor *t =
            strncmp(line, "leaf ", 5) ? apply(made, count, line) : make_leaf(ctx, line + 5);
        if (!t || gd_tensor_count(t) > ELEMENTS) {
            printf("error %d %s\n", count,
                   gd_error(ctx) ? gd_error(ctx) : "a tensor here has 1 to 64 elements");
            gd_context_free(ctx);
            return;
        }
        if (t->node) printf("is %d n%lld\n", count, (long long)t->node->index);
        made[count++] = t;
    }
    if (count && spy_tape(made[count - 1], SPY_SHOWN, gd_backward))
        printf("error %d %s\n", count - 1, gd_error(ctx));
    gd_context_free(ctx);
}
