/* tape_print.c - the tape as text, and as a graph. */
#include "core.h"

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
        char label[96];
        tensor_label(list[i], label, sizeof label);
        fprintf(file, "%s", i ? ", " : "");
        if (labels) fprintf(file, "%s%s", label, list[i] ? " " : "");
        if (list[i]) fprintf(file, "%s", gd_shape_text(list[i]).text);
    }
}

/* Bytes that wait for the node's backward: what it saved, and the values it will read. */
static size_t bytes_saved(const gd_node *node)
{
    size_t bytes = 0;
    for (int i = 0; i < node->saves; i++) {
        if (node->save[i]) bytes += node->save[i]->storage->bytes;
    }
    for (int i = 0; i < node->inputs; i++) {
        const gd_tensor *t = node->input[i];
        if (t && gd_op_reads_input(node->op, i)) {
            bytes += (size_t)t->count * gd_dtype_size(t->dtype);
        }
    }
    for (int i = 0; i < node->outputs; i++) {
        const gd_tensor *t = node->output[i];
        if (gd_op_reads_output(node->op, i)) bytes += (size_t)t->count * gd_dtype_size(t->dtype);
    }
    return bytes;
}

static gd_status finish(gd_context *ctx, FILE *file, const char *who)
{
    if (!ferror(file)) return GD_OK;
    return gd_fail(ctx, GD_ERROR_IO, "%s: writing to the file failed", who);
}

gd_status gd_tape_print(gd_context *ctx, FILE *file)
{
    if (!ctx || !file) return GD_ERROR_ARGUMENT;
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        const gd_node *node = ctx->tape[i];
        fprintf(file, "#%lld %s(", (long long)i, node->op->name);
        print_tensors(file, node->input, node->inputs, true);
        fprintf(file, ") -> ");
        print_tensors(file, node->output, node->outputs, false);
        fprintf(file, "  saved %zu bytes%s", bytes_saved(node), node->used ? ", used up" : "");
        for (int k = 0; node->norms && k < node->outputs; k++) {
            if (!isnan(node->norms[k])) fprintf(file, "  |grad| %.4g", node->norms[k]);
        }
        fprintf(file, "\n");
    }
    return finish(ctx, file, "tape_print");
}

/* Quotes and backslashes would end the label. */
static void print_quoted(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        fputc(*text, file);
    }
}

/* A leaf is drawn once for each pointer: its address is its name in the graph. */
static void print_dot_edge(FILE *file, const gd_tensor *t, const gd_node *node)
{
    if (t->node) {
        fprintf(file, "    n%lld -> n%lld [label=\"%s\"];\n", (long long)t->node->index,
                (long long)node->index, gd_shape_text(t).text);
        return;
    }
    fprintf(file, "    t%p [shape=ellipse, style=%s, label=\"", (const void *)t,
            t->requires_grad ? "filled" : "solid");
    char label[96];
    tensor_label(t, label, sizeof label);
    print_quoted(file, label);
    fprintf(file, "\\n%s\"];\n    t%p -> n%lld;\n", gd_shape_text(t).text, (const void *)t,
            (long long)node->index);
}

gd_status gd_tape_print_dot(gd_context *ctx, FILE *file)
{
    if (!ctx || !file) return GD_ERROR_ARGUMENT;
    fprintf(file, "digraph tape {\n    rankdir=TB;\n    node [shape=box, fontname=monospace];\n");
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        const gd_node *node = ctx->tape[i];
        fprintf(file, "    n%lld [label=\"#%lld ", (long long)i, (long long)i);
        print_quoted(file, node->op->name);
        for (int k = 0; k < node->outputs; k++) {
            fprintf(file, "\\n%s", gd_shape_text(node->output[k]).text);
            if (node->norms && !isnan(node->norms[k])) {
                fprintf(file, " |grad| %.3g", node->norms[k]);
            }
        }
        fprintf(file, "\"];\n");
        for (int k = 0; k < node->inputs; k++) {
            if (node->input[k]) print_dot_edge(file, node->input[k], node);
        }
    }
    fprintf(file, "}\n");
    return finish(ctx, file, "tape_print_dot");
}

/* ---- Where it went wrong ------------------------------------------------------------------ */

static bool holds_nonfinite(gd_context *ctx, const gd_tensor *t)
{
    bool there = t && t->storage && !t->storage->released && gd_dtype_is_real(t->dtype);
    if (!there || t->count == 0) return false;
    bool found = false;
    size_t bytes = (size_t)t->count * sizeof(double);
    double *values = gd_host_allocate(ctx, bytes, "a look at the values of a tensor");
    gd_tensor window = *t; /* the user may have freed it: the values are still the tape's */
    window.freed = false;
    if (values && !gd_tensor_read_f64(&window, values, t->count)) {
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
        for (int k = 0; k < node->outputs; k++) {
            if (!holds_nonfinite(ctx, node->output[k])) continue;
            char label[96];
            tensor_label(node->output[k], label, sizeof label);
            if (text) {
                snprintf(text, size, "%s %s %s", label, node->op->name,
                         gd_shape_text(node->output[k]).text);
            }
            return i;
        }
    }
    return -1;
}

/* ---- Norms -------------------------------------------------------------------------------- */

void gd_tape_record_norms(gd_context *ctx, bool on)
{
    if (ctx) ctx->record_norms = on;
}
