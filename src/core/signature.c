/* signature.c - what a record says (gd_op in autograd.h): whether it is usable, and its signature,
 * which is read once; then the inputs of each call are compared with it, and the shapes of its
 * results follow from them. */
#include "core/core.h"

#include <limits.h>
#include <stdio.h>

enum { SHARED, ANY, MASK, REAL, INT32, FLOAT64, COMPUTE, DTYPES };
static const char *const dtype_names[] = {"", "any", "mask", "real", "int32", "float64", "compute"};

/* Whatever a size, dimensions or a dtype of one input decide for the others: 26 letters,
 * and these. */
enum { NO_LETTER = 26, OPEN, DTYPE, DECIDED, MOST_TENSORS = 16 };

/* A size: `factor` times that of a letter, which is 1 if there is no letter. */
typedef struct extent {
    int factor, letter;
} extent;

typedef struct pattern {
    const char *name, *shape; /* "[..., N]"; NULL: shape() looks at it */
    int name_length, shape_length, dtype, dims;
    int open; /* dim[open] is behind "..." or "*"; -1: there is neither */
    bool broadcasts;
    extent dim[GD_MAX_DIMS];
} pattern;

struct gd_signature {
    const gd_op *op;     /* whose it is */
    const char *text;    /* op->signature when it was read */
    gd_op_counts counts; /* its own, or what the record has in their place */
    int parts[3];        /* inputs, outputs, saves */
    uint32_t optional;
    bool any;   /* its one input stands for one or more */
    bool whole; /* it gives all shapes */
    bool alike; /* its tensors have one dtype and one shape */
    pattern tensor[MOST_TENSORS];
};

/* ---- Reading ------------------------------------------------------------------------------ */

/* The fault of a record, or NULL. */
static const char *record_fault(const gd_op *op, const gd_op_counts *n)
{
    if (!op->name || !*op->name) return "it has no name";
    if (!op->shape && !op->signature) return "it has no shape() and no signature";
    if (op->args_size > INT32_MAX) return "its args_size is more than 2^31 - 1 bytes";
    if (op->case_count < 0 || (op->case_count && !op->cases)) return "its cases are missing";
    bool forward = false;
    for (int i = 0; i < GD_DEVICE_COUNT; i++) {
        if (op->backward[i] && !op->forward[i] && !op->view)
            return "it has a backward without a forward";
        forward = forward || op->forward[i];
    }
    if (op->kernels && !op->definition) return "it has kernels() without a definition";
    if (!forward && !op->definition && !op->view)
        return "it has neither a forward nor a definition";
    if (n->outputs < 1) return "it has no output";
    if (n->saves < 0) return "its number of saves is negative";
    return n->inputs > 0 || n->inputs == GD_ANY_INPUTS ? NULL : "it has no inputs";
}

static bool take(const char **at, const char *mark)
{
    const char *start = *at + strspn(*at, " ");
    if (strncmp(start, mark, strlen(mark)) != 0) return false;
    *at = start + strlen(mark);
    return true;
}

static bool take_dtype(const char **at, pattern *p)
{
    for (p->dtype = ANY; p->dtype < DTYPES; p->dtype++)
        if (take(at, dtype_names[p->dtype])) return true;
    return false;
}

/* Adds to the letters of the tensor. */
static bool read_dim(const char **at, pattern *p, unsigned *letters)
{
    extent *dim = &p->dim[p->dims];
    const bool star = take(at, "*");
    if (star || take(at, "...")) {
        if (*letters >> OPEN & 1) return false;
        p->open = p->dims, p->broadcasts = star;
        *letters |= 1U << OPEN;
        return true;
    }
    *at += strspn(*at, " ");
    const char *digits = *at, *end = digits + strspn(digits, "0123456789");
    if (p->dims++ == GD_MAX_DIMS || end - digits > 9) return false;
    for (dim->factor = end == digits; *at < end; ++*at) dim->factor = 10 * dim->factor + **at - '0';
    dim->letter = **at >= 'A' && **at <= 'Z' ? *(*at)++ - 'A' : NO_LETTER;
    *letters |= 1U << dim->letter;
    return *at > digits && (dim->factor > 0 || dim->letter == NO_LETTER);
}

static bool read_tensor(const char **at, pattern *p, unsigned *letters)
{
    *at += strspn(*at, " ");
    *p = (pattern){.name = *at, .open = -1};
    p->name_length = (int)strspn(*at, "abcdefghijklmnopqrstuvwxyz_0123456789");
    *at += p->name_length;
    if (!p->name_length || (take(at, ":") && !take_dtype(at, p))) return false;
    if (!take(at, "[")) return true;
    p->shape = *at - 1;
    for (bool first = true; !take(at, "]"); first = false)
        if ((!first && !take(at, ",")) || !read_dim(at, p, letters)) return false;
    p->shape_length = (int)(*at - p->shape);
    return true;
}

/* Inputs, "->", outputs, ";", saves. False: there is a fault, to which *at points. */
static bool read_signature(gd_signature *s, const char **at)
{
    unsigned known = 1U << NO_LETTER; /* by inputs that must be given */
    for (int i = 0, part = 0; i < MOST_TENSORS; i++) {
        unsigned letters = 0;
        pattern *p = &s->tensor[i];
        if (!read_tensor(at, p, &letters)) return false;
        const bool optional = part == 0 && take(at, "?");
        if (i == 0) s->any = take(at, "+");
        if (s->any && part == 0 && i > 0) return false;
        if (optional)
            s->optional |= GD_BIT(i), s->alike = s->alike && i > 0;
        else if (part == 0)
            known |= letters;
        else if (letters & ~known)
            return false;
        s->parts[part]++;
        s->alike =
            s->alike && !s->any && p->dtype == SHARED && p->open == 0 && p->dims == 0 && part < 2;
        s->whole = s->whole && (part == 0 || p->shape);
        if (part < 2 && take(at, part ? ";" : "->"))
            part++;
        else if (**at != ' ')
            return !**at;
    }
    return false;
}

/* What the signature does not say, the record may. */
static gd_op_counts counts_of(const gd_signature *s, const gd_op *op)
{
    const int *n = s->parts, inputs = s->any ? GD_ANY_INPUTS : n[0];
    return (gd_op_counts){n[0] ? inputs : op->inputs, n[1] ? n[1] : op->outputs,
                          n[2] ? n[2] : op->saves, n[0] ? s->optional : op->optional_inputs};
}

gd_op_counts gd_op_count(const gd_op *op)
{
    gd_signature s = {0};
    const char *at = op->signature;
    if (at && *at) read_signature(&s, &at);
    return counts_of(&s, op);
}

void gd_signatures_free(gd_context *ctx)
{
    for (int i = 0; i < GD_SIGNATURES; i++)
        gd_host_release(ctx, ctx->signatures[i], sizeof *ctx->signatures[i]);
}

/* Where the signature of a record is kept, or can be; NULL: there is no room for it. */
static inline gd_signature **place_of(gd_context *ctx, const gd_op *op)
{
    const size_t first = (uintptr_t)op / 64;
    for (size_t i = first; op->constant && i < first + 16; i++) {
        gd_signature **place = &ctx->signatures[i % GD_SIGNATURES];
        if (!*place || (*place)->op == op) return place;
    }
    return NULL;
}

const gd_signature *gd_signature_read(gd_context *ctx, const gd_op *op, const char *who,
                                      gd_op_counts *counts)
{
    gd_signature **kept = place_of(ctx, op);
    if (kept && *kept && (*kept)->text == op->signature) {
        *counts = (*kept)->counts;
        return *kept;
    }
    const char *name = op->name ? op->name : "", *text = op->signature ? op->signature : "";
    gd_signature read = {.op = op, .text = op->signature, .whole = true, .alike = *text != 0};
    const char *at = text, *fault = NULL;
    const bool right = !*text || read_signature(&read, &at);
    *counts = read.counts = counts_of(&read, op);
    const bool whole =
        read.whole && read.parts[1] == counts->outputs && read.parts[2] == counts->saves;
    if (right && who) fault = record_fault(op, counts);
    if (!right)
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: its signature \"%.300s\" is wrong from \"%.40s\" on",
                name, text, at);
    else if (fault)
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the record of \"%s\" is not usable: %s", who, name,
                fault);
    else if (!whole && !op->shape)
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "%s: its signature \"%.300s\" lacks shapes of results, and there is no shape()",
                name, text);
    if (gd_failed(ctx)) return NULL;
    gd_signature *s = !kept   ? gd_arena_allocate(ctx, sizeof *s, "a signature")
                      : *kept ? *kept
                              : gd_host_allocate(ctx, sizeof *s, "a signature");
    if (s) *s = read;
    if (kept) *kept = s;
    return s;
}

gd_text gd_input_name(const gd_op *op, int i)
{
    gd_signature s = {.whole = true};
    gd_text text;
    const char *at = op ? op->signature : NULL, *name = NULL;
    const bool said = at && *at && read_signature(&s, &at);
    const bool any = s.any || (op && op->inputs == GD_ANY_INPUTS);
    const int place = any ? 0 : i;
    int length = 100;
    if (op && place >= 0 && place < GD_CASE_MAX_INPUTS) name = op->input_names[place];
    if (!name && said && place >= 0 && place < s.parts[0])
        name = s.tensor[place].name, length = s.tensor[place].name_length;
    if (name)
        snprintf(text.text, sizeof text.text, any ? "%.*s[%d]" : "%.*s", length, name, i);
    else
        snprintf(text.text, sizeof text.text, "input %d", i);
    return text;
}

/* ---- Comparing the inputs of a call --------------------------------------------------------- */

typedef struct match {
    const gd_call *call;
    gd_dtype dtype;      /* of the inputs whose signature has none, or "any" */
    const int64_t *open; /* the dimensions of "..." or "*" */
    int open_dims;
    bool exact;                /* there was "...": they do not grow */
    unsigned bound;            /* what is decided */
    int by[DECIDED], compared; /* by which input; what was compared last */
    int64_t size[NO_LETTER + 1], joined[GD_MAX_DIMS];
} match;

/* Whether something is decided; if not, input i decides it. */
static inline bool is_bound(match *m, int what, int i)
{
    const bool bound = m->bound >> what & 1;
    m->compared = what;
    m->bound |= 1U << what;
    if (!bound) m->by[what] = i;
    return bound;
}

static inline gd_dtype dtype_of(const match *m, const pattern *p)
{
    if (p->dtype <= REAL) return m->dtype;
    return p->dtype == COMPUTE ? m->call->dtype : p->dtype == INT32 ? GD_INT32 : GD_FLOAT64;
}

static inline bool dtype_fits(match *m, const pattern *p, gd_dtype dtype, int i)
{
    m->compared = DTYPE;
    if (p->dtype == REAL) return gd_dtype_is_real(dtype);
    if (p->dtype > REAL) return dtype == dtype_of(m, p);
    if (p->dtype == MASK && dtype == GD_INT32) return true;
    if (is_bound(m, DTYPE, i)) return dtype == m->dtype;
    m->dtype = dtype;
    return p->dtype == ANY || gd_dtype_is_real(dtype);
}

static inline int64_t size_of(const match *m, const extent *dim)
{
    int64_t size;
    return __builtin_mul_overflow(dim->factor, m->size[dim->letter], &size) ? INT64_MAX : size;
}

static bool dim_fits(match *m, const extent *dim, int64_t size, int i)
{
    if (is_bound(m, dim->letter, i)) return size == size_of(m, dim);
    m->size[dim->letter] = dim->factor > 1 ? size / dim->factor : size;
    return dim->factor == 1 || size % dim->factor == 0;
}

/* NumPy's rule: shapes are aligned at the right; sizes must be equal, or one of them 1. */
static bool join(match *m, const int64_t *shape, int n)
{
    const int most = n > m->open_dims ? n : m->open_dims;
    if (m->exact && n > m->open_dims) return false;
    for (int d = 1; d <= most; d++) {
        const int64_t a = d <= m->open_dims ? m->open[m->open_dims - d] : 1,
                      b = d <= n ? shape[n - d] : 1;
        if (a != b && b != 1 && (a != 1 || m->exact)) return false;
        m->joined[most - d] = a == 1 ? b : a;
    }
    m->open = m->joined, m->open_dims = most;
    return true;
}

static bool open_fits(match *m, const pattern *p, const int64_t *shape, int n, int i)
{
    if (!is_bound(m, OPEN, i)) m->open = shape, m->open_dims = n;
    if (!p->broadcasts) m->exact = true;
    const bool same = n == m->open_dims && !memcmp(shape, m->open, (size_t)n * sizeof *shape);
    return same || (p->broadcasts && join(m, shape, n));
}

static inline bool shape_fits(match *m, const pattern *p, const gd_tensor *t, int i)
{
    const int n = t->ndim - p->dims, open = p->open < 0 ? p->dims : p->open;
    m->compared = NO_LETTER;
    if (p->open < 0 ? n != 0 : n < 0) return false;
    for (int d = 0; d < p->dims; d++)
        if (!dim_fits(m, &p->dim[d], t->shape[d < open ? d : d + n], i)) return false;
    return p->open < 0 || open_fits(m, p, t->shape + open, n, i);
}

/* One form for all: "weight is float32 [6, 7], wanted [N, K] with K = 4 as in x float32 [3, 4]". */
static gd_status refuse(const match *m, const gd_signature *s, const pattern *p, int i)
{
    const gd_call *call = m->call;
    const gd_tensor *t = call->input[i], *other = NULL;
    const int what = m->compared, by = what == DTYPE && p->dtype >= REAL ? -1 : m->by[what];
    const char *wanted = p->dtype <= REAL ? "a real dtype" : dtype_names[p->dtype];
    char with[640] = "";
    if (by >= 0 && by != i) other = call->input[by];
    const bool broadcasts = other && what == OPEN && p->broadcasts;
    if (other && what < NO_LETTER)
        snprintf(with, 40, " with %c = %lld", 'A' + what, (long long)m->size[what]);
    /* "..." are not all dimensions of an input that has others, too: "as in x[..., K]". */
    const pattern *q = other && what == OPEN && !broadcasts && !s->any ? s->tensor + by : p;
    if (other)
        snprintf(with + strlen(with), 600, " %s %s%.*s %s %s",
                 broadcasts ? "that broadcasts with" : "as in", gd_input_name(call->op, by).text,
                 q->dims == p->dims ? 0 : q->shape_length, q->shape, gd_dtype_name(other->dtype),
                 gd_shape_text(other).text);
    if (what == DTYPE && other) wanted = gd_dtype_name(m->dtype);
    if (what != DTYPE) wanted = broadcasts && p->dims == 0 ? "a shape" : p->shape;
    return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %s %s, wanted %.*s%s%s",
                        gd_input_name(call->op, i).text, gd_dtype_name(t->dtype),
                        gd_shape_text(t).text, wanted == p->shape ? p->shape_length : INT_MAX,
                        wanted, with, what == DTYPE ? "; use gd_cast" : "");
}

static gd_status check_range(const gd_call *call, const gd_option_range *r)
{
    const gd_tensor *x = call->input[0];
    const void *at = (const char *)call->args + r->offset;
    const bool real = r->kind == GD_NUMBER_DOUBLE, axis = r->kind == GD_NUMBER_AXIS;
    const double value = real                         ? *(const double *)at
                         : r->kind == GD_NUMBER_INT64 ? (double)*(const int64_t *)at
                                                      : *(const int *)at;
    if (axis ? value >= 0 && value < x->ndim : value >= r->low && value <= r->high) return GD_OK;
    if (!axis)
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %.*g, wanted %s", r->name,
                            real ? 6 : 19, value, r->wanted);
    return gd_call_fail(call, GD_ERROR_ARGUMENT,
                        "%s is %g, wanted one of the %d dimensions of %s %s", r->name, value,
                        x->ndim, gd_input_name(call->op, 0).text, gd_shape_text(x).text);
}

/* ---- The shapes of results ----------------------------------------------------------------- */

static gd_status fill(const match *m, const pattern *p, gd_spec *spec)
{
    const int n = p->open < 0 ? 0 : m->open_dims, open = p->open < 0 ? p->dims : p->open;
    spec->dtype = dtype_of(m, p);
    spec->ndim = p->dims + n;
    if (spec->ndim > GD_MAX_DIMS)
        return gd_call_fail(m->call, GD_ERROR_ARGUMENT,
                            "%.*s would have %d dimensions, wanted at most %d", p->name_length,
                            p->name, spec->ndim, GD_MAX_DIMS);
    for (int d = 0; d < n; d++) spec->shape[open + d] = m->open[d];
    for (int d = 0; d < p->dims; d++) spec->shape[d < open ? d : d + n] = size_of(m, &p->dim[d]);
    return GD_OK;
}

static gd_status compare(const gd_signature *s, const gd_call *call, gd_shapes *out)
{
    match m; /* by[] and size[] are set where something is decided */
    m.call = call, m.exact = false;
    m.bound = 1U << NO_LETTER, m.by[NO_LETTER] = -1, m.size[NO_LETTER] = 1;
    const pattern *p = s->tensor;
    const int inputs = s->any ? call->inputs : s->parts[0];
    for (int i = 0; i < inputs; i++, p += !s->any) {
        const gd_tensor *t = call->input[i];
        if (t && !(dtype_fits(&m, p, t->dtype, i) && (!p->shape || shape_fits(&m, p, t, i))))
            return refuse(&m, s, p, i);
    }
    p = s->tensor + s->parts[0];
    for (int i = 0; i < s->parts[1]; i++, p++)
        if (fill(&m, p, &out->output[i])) return GD_ERROR_ARGUMENT;
    for (int i = 0; i < s->parts[2]; i++, p++)
        if (fill(&m, p, &out->save[i])) return GD_ERROR_ARGUMENT;
    return GD_OK;
}

/* Of "a[*] b[*] -> y[*]" and the like: most calls' inputs are alike, and comparing would take a
 * tenth of the time of a call on a few numbers. */
static inline bool all_alike(const gd_signature *s, const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[0];
    bool alike = s->alike && gd_dtype_is_real(x->dtype);
    for (int i = 1; alike && i < s->parts[0]; i++) {
        const gd_tensor *t = call->input[i];
        alike = !t || (t->dtype == x->dtype && gd_same_shape(t, x));
    }
    for (int i = 0; alike && i < s->parts[1]; i++) {
        out->output[i].dtype = x->dtype, out->output[i].ndim = x->ndim;
        memcpy(out->output[i].shape, x->shape, sizeof x->shape);
    }
    return alike;
}

gd_status gd_signature_check(const gd_signature *s, const gd_call *call, gd_shapes *out)
{
    if (!all_alike(s, call, out) && compare(s, call, out)) return GD_ERROR_ARGUMENT;
    for (const gd_option_range *r = call->op->ranges; r && r->name; r++)
        if (check_range(call, r)) return GD_ERROR_ARGUMENT;
    return call->op->shape ? call->op->shape(call, out) : GD_OK;
}
