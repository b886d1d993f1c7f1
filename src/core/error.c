/* error.c - the first error of a context, as one sentence, notices, and a refusal that many
 * calls share. */
#include "core/core.h"
#include "platform/number.h"

#include <stdarg.h>
#include <stdio.h>

const char *gd_status_name(gd_status status)
{
    static const char *const names[] = {
        [GD_OK] = "ok",
        [GD_ERROR_ARGUMENT] = "bad argument",
        [GD_ERROR_STATE] = "wrong state",
        [GD_ERROR_MEMORY] = "out of memory",
        [GD_ERROR_DEVICE] = "device error",
        [GD_ERROR_UNSUPPORTED] = "unsupported",
        [GD_ERROR_IO] = "input/output error",
    };
    const bool known = (unsigned)status < sizeof names / sizeof *names && names[status];
    return known ? names[status] : "unknown status";
}

/* The index at which the UTF-8 character that text[at] belongs to begins. */
static size_t begin_of(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

/* A message that is too long loses its middle, of whole characters: the reason comes after a path
 * of up to some thousand bytes. */
static void keep_ends(char *error, size_t size, const char *whole)
{
    static const char dots[] = " ... ";
    size_t length = strlen(whole), tail = size / 2;
    if (length < size) {
        memcpy(error, whole, length + 1);
        return;
    }
    const size_t head = begin_of(whole, size - tail - strlen(dots));
    const char *end = whole + length + 1 - tail;
    while (((unsigned char)*end & 0xc0) == 0x80) end++;
    snprintf(error, size, "%.*s%s%s", (int)head, whole, dots, end);
}

void gd_replace_controls(char *text)
{
    int rest = 0; /* bytes that belong to a character which has begun */
    for (unsigned char before = 0, c; (c = (unsigned char)*text); before = c, text++) {
        const bool within = rest > 0 && c >= 0x80 && c < 0xc0, high = c >= 0x80 && c < 0xa0;
        const bool c1 = before == 0xc2 && high; /* U+0080 to U+009F */
        if (c1) text[-1] = '?';
        if (c < 0x20 || c == 0x7f || c1 || (high && !within)) *text = '?';
        rest = within ? rest - 1 : (c >= 0xc2) + (c >= 0xe0) + (c >= 0xf0);
    }
}

gd_status gd_fail(gd_context *ctx, gd_status status, const char *format, ...)
{
    if (!ctx) return GD_ERROR_MEMORY;
    if (ctx->status != GD_OK) return ctx->status;
    ctx->status = status == GD_OK ? GD_ERROR_STATE : status;
    ctx->asked = false;
    char whole[10000], *words = whole; /* room for two paths */
    if (ctx->part_of) words += snprintf(whole, 128, "%.100s: ", ctx->part_of->name);
    const size_t begin = (size_t)(words - whole), size = sizeof whole - begin;
    va_list args;
    va_start(args, format);
    if (gd_os_print_list(words, size, format, args) >= (int)size)
        words[begin_of(words, size - 2)] = '\0';
    va_end(args);
    if (strncmp(words, whole, begin) != 0) words = whole; /* they do not name that op */
    gd_replace_controls(words);
    keep_ends(ctx->error, sizeof ctx->error, words);
    return ctx->status;
}

gd_status gd_call_fail(const gd_call *call, gd_status status, const char *format, ...)
{
    char words[640];
    va_list args;
    if (!call) return status ? status : GD_ERROR_STATE;
    va_start(args, format);
    gd_os_print_list(words, sizeof words, format, args);
    va_end(args);
    return gd_fail(call->context, status, "%s: %s", call->op->name, words);
}

void gd_notice(gd_context *ctx, gd_notice_kind kind, const char *format, ...)
{
    char sentence[sizeof ctx->error + 100];
    if (ctx->notices & 1U << kind) return;
    ctx->notices |= 1U << kind;
    va_list args;
    va_start(args, format);
    gd_os_print_list(sentence, sizeof sentence, format, args);
    va_end(args);
    if (ctx->options.notice)
        ctx->options.notice(ctx->options.notice_user, sentence);
    else
        fprintf(stderr, "gradus: %s\n", sentence);
}

const char *gd_error(const gd_context *ctx)
{
    if (!ctx) return "out of memory";
    ((gd_context *)ctx)->asked = true; /* no context is constant */
    return ctx->status == GD_OK ? NULL : ctx->error;
}

gd_status gd_error_status(const gd_context *ctx)
{
    return ctx ? ctx->status : GD_ERROR_MEMORY;
}

void gd_error_clear(gd_context *ctx)
{
    if (!ctx) return;
    ctx->status = GD_OK;
    ctx->error[0] = '\0';
    if (!ctx->device) gd_fail(ctx, GD_ERROR_DEVICE, "this context has no device");
}

bool gd_refuse_in_graph(gd_context *ctx, const char *who)
{
    gd_fail(ctx, GD_ERROR_STATE,
            "%s: called from a function of gd_graph_run, which must neither wait for the device "
            "nor create anything that outlives the step",
            who);
    return false;
}
