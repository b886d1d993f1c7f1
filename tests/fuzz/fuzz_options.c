/* fuzz_options.c - any bytes as a file of options: refused with a message, or options that fit
 * together, and the same when they come back from a checkpoint's texts. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "fuzz.h"
#include "programs/terminal.h"
#include "train_options.h"

/* What a checkpoint may say: control characters are refused. */
static bool comes_back(const options_item *item)
{
    return item->text && !terminal_has_controls(item->text);
}

static void check_texts(const train_options *o)
{
    char *argv[] = {"gradus-train", NULL};
    train_options again;
    options_item item, other;
    demand(train_options_read(&again, argv) == OPTIONS_RUN, "defaults");
    for (int i = 0; options_saved(&o->base, i, &item); i++) {
        if (comes_back(&item))
            demand(options_restore(&again.base, item.name, item.text), item.name);
    }
    for (int i = 0; options_saved(&o->base, i, &item); i++) {
        demand(options_saved(&again.base, i, &other) && !strcmp(item.key, other.key), "as many");
        if (item.text && !comes_back(&item)) continue;
        demand(!item.text == !other.text, item.name);
        demand(!item.text || !strcmp(item.text, other.text), item.name);
    }
    options_free(&again.base);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static char path[600];
    snprintf(path, sizeof path, "%s", fuzz_file("options", bytes, size));
    char *argv[] = {"gradus-train", "--config", path, NULL};
    train_options options;
    options_outcome outcome = train_options_read(&options, argv);
    demand(outcome != OPTIONS_DONE, "no option of a file ends the program");
    if (outcome == OPTIONS_RUN && train_options_check(&options)) {
        demand(options.data || options.tokens, "a text");
        demand(options.heads > 0 && options.dim % options.heads == 0, "heads that fit");
        demand(options.kv_heads > 0 && options.heads % options.kv_heads == 0, "groups that fit");
        demand(options.min_lr >= 0 && options.min_lr <= options.lr, "rates that fit");
        check_texts(&options);
    }
    options_free(&options.base);
    return 0;
}
