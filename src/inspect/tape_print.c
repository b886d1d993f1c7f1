/* tape_print.c - the tape as text, and as a graph. */
#include "core/core.h"
#include "platform/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "#3" for the output of node 3, "#3.1" for its second; its name, or "input", for a leaf. */
static void tensor_label(const gd_tensor *t, char *label, size_t size)
{
    if (!t) {
        snprintf(label, size, "none");
    } else if (t->node) {
        snprintf(label, size, t->output ? "#%lld.%d" : "#%lld", (long long)t->node->index,
                 t->output);
    } else {
        snprintf(label, size, "%s", t->name[0] ? t->name : "input");
        gd_replace_controls(label);
    }
}

static void print_tensors(FILE *file, gd_tensor *const *list, int count, bool labels)
{
    for (int i = 0; i < count; i++) {
        char label[GD_NAME_SIZE];
        tensor_label(list[i], label, sizeof label);
        fprintf(file, "%s", i ? ", " : "");
        if (labels) fprintf(file, "%s%s", label, list[i] ? " " : "");
        if (list[i]) fprintf(file, "%s", gd_shape_text(list[i]).text);
    }
}

/* Bytes held for the node's backward: what it saved, and the values it will read. */
static size_t bytes_saved(const gd_node *node)
{
    size_t bytes = 0;
    for (int i = 0; i < node->call.saves; i++) {
        if (node->call.save[i]) bytes += node->call.save[i]->storage->bytes;
    }
    for (int i = 0; i < node->call.inputs + node->call.outputs; i++) {
        const gd_tensor *t = gd_node_value(node, i);
        if (t) bytes += (size_t)t->count * gd_dtype_size(t->dtype);
    }
    return bytes;
}

/* The norm of the gradient of t, if there is one. The function of a graph cannot read it. */
static void print_norm(FILE *file, const char *format, const gd_tensor *t)
{
    const gd_tensor *grad = gd_grad_now(t);
    if (grad && !t->ctx->in_graph)
        fprintf(file, format, gd_os_unsigned(sqrt(gd_sum_squares(grad))));
}

static gd_status finish(gd_context *ctx, FILE *file, const char *who, gd_os_locale *locale)
{
    gd_os_points_end(locale);
    if (!ferror(file)) return GD_OK;
    return gd_fail(ctx, GD_ERROR_IO, "%s: writing to the file failed", who);
}

/* "mul"; of a part of an op "prod: mul". */
static gd_text node_name(const gd_node *node)
{
    gd_text name;
    const bool part = node->call.part_of;
    snprintf(name.text, sizeof name.text, "%s%s%s", part ? node->call.part_of->name : "",
             part ? ": " : "", node->call.op->name);
    return name;
}

gd_status gd_tape_print(gd_context *ctx, FILE *file)
{
    if (!ctx || !file) return GD_ERROR_ARGUMENT;
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        const gd_node *node = ctx->tape[i];
        fprintf(file, "#%lld %s(", (long long)i, node_name(node).text);
        print_tensors(file, node->call.input, node->call.inputs, true);
        fprintf(file, ") -> ");
        print_tensors(file, node->call.output, node->call.outputs, false);
        fprintf(file, "  saved %zu bytes%s", bytes_saved(node), node->used ? ", used up" : "");
        for (int k = 0; k < node->call.outputs; k++)
            print_norm(file, "  |grad| %.4g", node->call.output[k]);
        fprintf(file, "\n");
    }
    return finish(ctx, file, "tape_print", &locale);
}

/* Quotes and backslashes would end the label. */
static void print_quoted(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        fputc(*text, file);
    }
}

/* A node of the tape is n4. A leaf is named after the place where the tape first reads it: t4_1 is
 * input 1 of node 4. So the same program prints the same bytes every time. */
static gd_text dot_id(const gd_context *ctx, const gd_tensor *t)
{
    gd_text id = {"t"};
    if (t->node) {
        snprintf(id.text, sizeof id.text, "n%lld", (long long)t->node->index);
        return id;
    }
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        for (int k = 0; k < ctx->tape[i]->call.inputs; k++) {
            if (ctx->tape[i]->call.input[k] != t) continue;
            snprintf(id.text, sizeof id.text, "t%lld_%d", (long long)i, k);
            return id;
        }
    }
    return id;
}

/* `name` is the op's name of the input, for a leaf without its own name. Prints the norm of its
 * gradient if norms are recorded and it has one. */
static void print_dot_leaf(gd_context *ctx, FILE *file, const gd_tensor *t, const char *name,
                           const char *id)
{
    fprintf(file, "    %s [id=\"%s\", shape=ellipse, style=%s, label=\"", id, id,
            t->requires_grad ? "filled" : "solid");
    gd_text label;
    snprintf(label.text, sizeof label.text, "%s", t->name[0] ? t->name : name);
    gd_replace_controls(label.text);
    print_quoted(file, label.text);
    fprintf(file, "\\n%s", gd_shape_text(t).text);
    if (ctx->retain_grads) print_norm(file, "\\n|grad| %.3g", t);
    fprintf(file, "\"];\n");
}

/* Input k of a node: an arrow for the value, and a dashed one for the gradient that comes back. */
static void print_dot_input(gd_context *ctx, FILE *file, const gd_node *node, int k)
{
    const gd_tensor *t = node->call.input[k];
    const gd_text id = dot_id(ctx, t);
    char first[32];
    snprintf(first, sizeof first, "t%lld_%d", (long long)node->index, k);
    if (!t->node && !strcmp(id.text, first))
        print_dot_leaf(ctx, file, t, gd_input_name(node->call.op, k).text, id.text);
    fprintf(file, "    %s -> n%lld [id=\"%s_n%lld_%d\", label=\"%s\"];\n", id.text,
            (long long)node->index, id.text, (long long)node->index, k, gd_shape_text(t).text);
    if (!t->requires_grad) return;
    fprintf(file, "    n%lld -> %s [id=\"n%lld_%d_%s\", style=dashed, constraint=false];\n",
            (long long)node->index, id.text, (long long)node->index, k, id.text);
}

static void print_dot_node(FILE *file, const gd_node *node)
{
    fprintf(file, "    n%lld [id=\"n%lld\", label=\"#%lld ", (long long)node->index,
            (long long)node->index, (long long)node->index);
    print_quoted(file, node_name(node).text);
    for (int k = 0; k < node->call.outputs; k++) {
        fprintf(file, "\\n%s", gd_shape_text(node->call.output[k]).text);
        print_norm(file, " |grad| %.3g", node->call.output[k]);
    }
    fprintf(file, "\\nsaved %zu bytes\"];\n", bytes_saved(node));
}

gd_status gd_tape_print_dot(gd_context *ctx, FILE *file)
{
    if (!ctx || !file) return GD_ERROR_ARGUMENT;
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    fprintf(file, "digraph tape {\n    rankdir=TB;\n    node [shape=box, fontname=monospace];\n");
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        const gd_node *node = ctx->tape[i];
        print_dot_node(file, node);
        for (int k = 0; k < node->call.inputs; k++) {
            if (node->call.input[k]) print_dot_input(ctx, file, node, k);
        }
    }
    fprintf(file, "}\n");
    return finish(ctx, file, "tape_print_dot", &locale);
}

/* ---- Where it went wrong ------------------------------------------------------------------ */

static bool holds_nonfinite(gd_context *ctx, const gd_tensor *t)
{
    bool there = t && t->storage && !t->storage->released && gd_dtype_is_real(t->dtype);
    if (!there || t->count == 0) return false;
    bool found = false;
    size_t bytes = (size_t)t->count * sizeof(double);
    double *values = gd_host_allocate(ctx, bytes, "the values of a tensor");
    gd_tensor view = *t; /* the user may have freed it, but the tape still has the values */
    view.freed = false;
    if (values && !gd_tensor_read_f64(&view, values, t->count)) {
        for (int64_t i = 0; i < t->count && !found; i++) found = !isfinite(values[i]);
    }
    gd_host_release(ctx, values, bytes);
    return found;
}

int64_t gd_tape_find_nonfinite(gd_context *ctx, char *text, size_t size)
{
    if (!ctx || gd_failed(ctx)) return -1;
    for (int64_t i = 0; i < ctx->tape_length && !gd_failed(ctx); i++) {
        const gd_node *node = ctx->tape[i];
        for (int k = 0; k < node->call.outputs; k++) {
            if (!holds_nonfinite(ctx, node->call.output[k])) continue;
            char label[GD_NAME_SIZE];
            tensor_label(node->call.output[k], label, sizeof label);
            if (text) {
                snprintf(text, size, "%s %s %s", label, node_name(node).text,
                         gd_shape_text(node->call.output[k]).text);
            }
            return i;
        }
    }
    return -1;
}

/* ---- Norms -------------------------------------------------------------------------------- */

void gd_tape_record_norms(gd_context *ctx, bool on)
{
    if (!ctx) return;
    ctx->retain_grads = on;
    for (int64_t i = 0; on && i < ctx->tape_length; i++) {
        const gd_node *node = ctx->tape[i];
        for (int k = 0; k < node->call.outputs; k++) node->call.output[k]->retain_grad = true;
    }
}
