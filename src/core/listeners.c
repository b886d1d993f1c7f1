/* listeners.c - telling those who listen that the gradient of a leaf is complete (gd_on_gradient).
 *
 * It is complete when the walk has visited the last node that reads the leaf: the first one on the
 * tape, which a backward finds when it marks its nodes. */
#include "core/core.h"

/* ---- Who listens -------------------------------------------------------------------------- */

void gd_listen(gd_context *ctx, gd_listener *listener)
{
    gd_listener **link = &ctx->listeners;
    while (*link && ((*link)->users || !listener->users)) link = &(*link)->next;
    listener->next = *link;
    *link = listener;
}

void gd_unlisten(gd_context *ctx, gd_listener *listener)
{
    gd_listener **link = &ctx->listeners;
    while (*link && *link != listener) link = &(*link)->next;
    if (*link) *link = listener->next;
}

/* Hooks may remove others while a backward goes through the list: these are freed later. */
static void remove_hooks(gd_context *ctx, const void *user)
{
    for (gd_listener *l = ctx->listeners, *next; l; l = next) {
        next = l->next;
        if (l->users && (!user || l->user == user)) l->hook = NULL;
        if (l->hook || ctx->in_backward) continue;
        gd_unlisten(ctx, l);
        gd_host_release(ctx, l, sizeof *l);
    }
}

gd_status gd_on_gradient(gd_context *ctx, gd_grad_hook hook, void *user)
{
    if (!ctx) return GD_ERROR_ARGUMENT;
    if (!hook) {
        remove_hooks(ctx, user);
        return GD_OK;
    }
    for (const gd_listener *l = ctx->listeners; l; l = l->next) {
        if (l->users && l->hook == hook && l->user == user) return GD_OK;
    }
    gd_listener *listener = gd_host_allocate(ctx, sizeof *listener, "on_gradient");
    if (!listener) return ctx->status;
    *listener = (gd_listener){.hook = hook, .user = user, .users = true};
    gd_listen(ctx, listener);
    return GD_OK;
}

/* ---- Hooks of a backward ------------------------------------------------------------------ */

void gd_await_leaves(const gd_node *node)
{
    for (int i = 0; i < node->call.inputs; i++) {
        gd_tensor *t = node->call.input[i];
        if (t && !t->step && t->requires_grad) t->awaited = true, t->reader = node;
    }
}

static void notify_complete(gd_tensor *leaf)
{
    gd_context *ctx = leaf->ctx;
    const bool reached = leaf->grad_valid;
    leaf->awaited = false;
    for (const gd_listener *l = ctx->listeners; l && reached && !gd_failed(ctx); l = l->next) {
        if (l->hook) l->hook(l->user, leaf);
    }
}

void gd_finish_leaves(const gd_node *node)
{
    for (int i = 0; i < node->call.inputs; i++) {
        gd_tensor *t = node->call.input[i];
        if (t && t->awaited && t->reader == node) notify_complete(t);
    }
}

void gd_finish_all_leaves(gd_context *ctx)
{
    for (gd_tensor *t = ctx->user_tensors; t; t = t->next) {
        if (t->awaited) notify_complete(t);
    }
}
