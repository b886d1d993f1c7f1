/* tape_in_100_lines.c - the library's idea without the library, with the names of src/core/ (gd_op,
 * gd_node, gd_apply, gd_backward). What is not here are memory, shapes, dtypes and errors. */
#include <math.h>
#include <stdio.h>

enum { N = 3, NODES = 64 }; /* numbers of a tensor; nodes of a step */
typedef struct tensor {
    double value[N], grad[N]; /* grad: of the loss by value */
} tensor;
tensor w = {{0.5, -1, 2}, {0}}, x = {{1, 0.3, -0.7}, {0}}, b = {{0.1, 0, -0.4}, {0}};

/* An op is data: two functions of a node. backward adds to what is there: others may read a, too. */
typedef struct node node;
typedef struct op {
    const char *name;
    void (*forward)(node *n), (*backward)(node *n);
} op;

struct node { /* what the tape remembers of a call, y = op(a, b) */
    const op *op;
    tensor y, *a, *b;
};

static void mul_forward(node *n)
{
    for (int k = 0; k < N; k++) n->y.value[k] = n->a->value[k] * n->b->value[k];
}
static void mul_backward(node *n)
{
    for (int k = 0; k < N; k++) n->a->grad[k] += n->y.grad[k] * n->b->value[k];
    for (int k = 0; k < N; k++) n->b->grad[k] += n->y.grad[k] * n->a->value[k];
}
static const op mul = {"mul", mul_forward, mul_backward};

static node tape[NODES];
static int nodes;

/* Runs an op and appends a node to the tape. */
static tensor *apply(const op *op, tensor *a, tensor *b)
{
    node *n = &tape[nodes++];
    *n = (node){op, {{0}, {0}}, a, b};
    op->forward(n);
    return &n->y;
}

/* From last to first: when the walk reaches a node, all that read its y have added their parts. */
static void backward(tensor *loss)
{
    for (int k = 0; k < N; k++) loss->grad[k] = 1;
    for (int i = nodes - 1; i >= 0; i--) tape[i].op->backward(&tape[i]);
}

static void add_forward(node *n)
{
    for (int k = 0; k < N; k++) n->y.value[k] = n->a->value[k] + n->b->value[k];
}
static void add_backward(node *n)
{
    for (int k = 0; k < N; k++) n->a->grad[k] += n->y.grad[k];
    for (int k = 0; k < N; k++) n->b->grad[k] += n->y.grad[k];
}
static const op add = {"add", add_forward, add_backward};

static void tanh_forward(node *n)
{
    for (int k = 0; k < N; k++) n->y.value[k] = tanh(n->a->value[k]);
}
static void tanh_backward(node *n)
{
    for (int k = 0; k < N; k++) n->a->grad[k] += n->y.grad[k] * (1 - n->y.value[k] * n->y.value[k]);
}
static const op tanh_op = {"tanh", tanh_forward, tanh_backward};

/* loss = (tanh(w x + b) + b)^2 of each number: b is read twice, and so is what is squared. */
static tensor *loss(void)
{
    nodes = 0; /* the step before is over */
    tensor *e = apply(&add, apply(&tanh_op, apply(&add, apply(&mul, &w, &x), &b), NULL), &b);
    return apply(&mul, e, e);
}

/* The backward against central differences: (loss(b + h) - loss(b - h)) / 2h. */
int main(void)
{
    tensor *inputs[] = {&w, &x, &b};
    int wrong = 0;
    backward(loss());
    for (int i = 0; i < 3 * N; i++) {
        double *value = &inputs[i / N]->value[i % N], grad = inputs[i / N]->grad[i % N], h = 1e-5;
        *value += h;
        double slope = loss()->value[i % N];
        *value -= 2 * h;
        slope = (slope - loss()->value[i % N]) / (2 * h);
        *value += h;
        wrong += !(fabs(slope - grad) < 1e-8);
        printf("d%c[%d] %9.6f, by differences %9.6f\n", "wxb"[i / N], i % N, grad, slope);
    }
    return !wrong && fflush(stdout) == 0 ? 0 : 1;
}
