/* tape_in_100_lines.c - the library's idea without the library: tensors, ops as records, a tape,
 * the backward and a gradient check. The names are those of src/core/ (gd_op, gd_node, gd_apply,
 * gd_backward); what is not here are memory, shapes, dtypes and errors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 3, TENSORS = 64 }; /* numbers of a tensor; tensors of a step */
typedef struct tensor {
    double value[N], grad[N]; /* grad: of the loss by value */
} tensor;

/* An op is data: two functions. backward adds to the gradients of its inputs: a tensor that is read
 * twice gets two terms. */
typedef struct op {
    const char *name;
    void (*forward)(tensor *y, const tensor *a, const tensor *b);
    void (*backward)(const tensor *y, tensor *a, tensor *b);
} op;

/* What the tape remembers of a call. */
typedef struct node {
    const op *op;
    tensor *output, *input[2];
} node;

static tensor step_tensors[TENSORS];
static node tape[TENSORS];
static int nodes;

/* Runs an op and appends a node to the tape. */
static tensor *apply(const op *op, tensor *a, tensor *b)
{
    tensor *y = &step_tensors[nodes];
    memset(y, 0, sizeof *y);
    op->forward(y, a, b);
    tape[nodes++] = (node){op, y, {a, b}};
    return y;
}

/* Walks the tape once, from last to first: a node reads only outputs of earlier ones, so the
 * gradient of a tensor is complete when the walk reaches the node that made it. */
static void backward(tensor *loss)
{
    for (int k = 0; k < N; k++) loss->grad[k] = 1;
    for (int i = nodes - 1; i >= 0; i--)
        tape[i].op->backward(tape[i].output, tape[i].input[0], tape[i].input[1]);
}

#define EACH for (int k = 0; k < N; k++)
#define OP(name, y_k, da_k, db_k)                                           \
    static void name##_forward(tensor *y, const tensor *a, const tensor *b) \
    {                                                                       \
        (void)b;                                                            \
        EACH y->value[k] = y_k;                                             \
    }                                                                       \
    static void name##_backward(const tensor *y, tensor *a, tensor *b)      \
    {                                                                       \
        EACH a->grad[k] += y->grad[k] * (da_k);                             \
        EACH if (b) b->grad[k] += y->grad[k] * (db_k);                      \
    }                                                                       \
    static const op name = {#name, name##_forward, name##_backward};

/*  y                                    dy/da                       dy/db */
OP(add, a->value[k] + b->value[k], 1, 1)
OP(mul, a->value[k] * b->value[k], b->value[k], a->value[k])
OP(tanh_op, tanh(a->value[k]), 1 - y->value[k] * y->value[k], 0)
OP(exp_op, exp(a->value[k]), y->value[k], 0)
OP(square, a->value[k] * a->value[k], 2 * a->value[k], 0)

/* loss = (tanh(w x + b) - exp(b))^2 of each number: w and x are read once, b twice. */
static tensor *loss_of(tensor *w, tensor *x, tensor *b, tensor *minus)
{
    nodes = 0; /* the step before is over */
    tensor *y = apply(&tanh_op, apply(&add, apply(&mul, w, x), b), NULL);
    return apply(&square, apply(&add, y, apply(&mul, minus, apply(&exp_op, b, NULL))), NULL);
}

/* The backward against central differences: (loss(b + h) - loss(b - h)) / 2h. */
int main(void)
{
    tensor w = {{0.5, -1, 2}, {0}}, x = {{1, 0.3, -0.7}, {0}}, b = {{0.1, 0, -0.4}, {0}};
    tensor minus = {{-1, -1, -1}, {0}}, *inputs[] = {&w, &x, &b};
    double worst = 0, h = 1e-5;
    backward(loss_of(&w, &x, &b, &minus));
    for (int i = 0; i < 3 * N; i++) {
        double *value = &inputs[i / N]->value[i % N], grad = inputs[i / N]->grad[i % N];
        const double before = *value;
        *value = before + h;
        double slope = loss_of(&w, &x, &b, &minus)->value[i % N];
        *value = before - h;
        slope = (slope - loss_of(&w, &x, &b, &minus)->value[i % N]) / (2 * h);
        *value = before;
        worst = fmax(worst, fabs(slope - grad));
        printf("d%c[%d] %9.6f, by differences %9.6f\n", "wxb"[i / N], i % N, grad, slope);
    }
    printf("largest difference: %.1e\n", worst);
    return worst < 1e-8 ? 0 : 1;
}
