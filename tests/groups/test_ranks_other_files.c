/* test_ranks_other_files.c - a rank whose texts, token files or model are not those of rank 0 is
 * noticed; so is a run that goes on with other token files. */
/* Build: runs gradus-train, the CPU's bits. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */

#include "check_main.h"
#include "needs_jansson.h"
#include "started_ranks.h"

/* A token file of uint16 ids below 90; `odd` is the place of one that is another, -1: none. */
static void write_shard(const char *name, int64_t count, int64_t odd)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    for (int64_t i = 0; i < count; i++) {
        const unsigned id = (unsigned)(i * 7919 % 89) + (i == odd);
        fputc((int)id, file);
        fputc(0, file);
    }
    fclose(file);
}

typedef struct other_file {
    const char *prepare; /* a command, in the folder, before the ranks start */
    const char *ours, *theirs, *words;
} other_file;

/* `%%s` is the small model. Ranks 0 and 2 use the first, rank 1 the second. */
static const other_file other_files[] = {
    {"true", "--data text %s --val-data text", "--data text %s --val-data same",
     "the validation text is "},
    {"true", "--data text %s --val-data text", "--data text %s", "the validation text is "},
    {"cp text tail && printf x | dd of=tail bs=1 seek=7999 conv=notrunc 2>/dev/null",
     "--data text %s", "--data tail %s", "the text is "}, /* its last tenth is for validation */
    {"true", "--tokens a.bin --val-data v.bin --vocab 90 %s",
     "--tokens middle.bin --val-data v.bin --vocab 90 %s", "the token files are "},
    {"true", "--tokens a.bin --val-data v.bin --vocab 90 %s",
     "--tokens longer.bin --val-data v.bin --vocab 90 %s", "the token files are "},
    {"true", "--tokens a.bin --val-data v.bin --vocab 90 %s",
     "--tokens a.bin --val-data w.bin --vocab 90 %s", "the validation text is "},
    {"mkdir x y && cp a.bin v.bin x && cp a.bin y && cp w.bin y/v.bin",
     "--tokens 'x/*.bin' --val-data v.bin --vocab 90 %s",
     "--tokens 'y/*.bin' --val-data v.bin --vocab 90 %s", "the token files are "},
};

LOOP_TEST(other_files_are_noticed, sizeof other_files / sizeof *other_files)
{
    const other_file *f = &other_files[_i];
    write_shard("a.bin", 700000, -1);
    write_shard("middle.bin", 700000, 600001); /* after the first mebibyte */
    write_shard("longer.bin", 700001, -1);
    write_shard("v.bin", 600000, -1);
    write_shard("w.bin", 600000, 599999);
    shell("cd '%s' && %s", folder, f->prepare);
    ranks all = new_ranks();
    char arguments[300];
    for (int r = 0; r < RANKS; r++) {
        snprintf(arguments, sizeof arguments, "%s --steps 2 --timeout 20",
                 r == 1 ? f->theirs : f->ours);
        begin_rank(&all, r, arguments);
    }
    for (int r = 0; r < RANKS; r++) {
        char name[16];
        ck_assert_int_eq(end_of(&all, r), 1);
        snprintf(name, sizeof name, "err.%d", r);
        program_said(text_of(name), "this process differs from rank 0: ");
        program_said(text_of(name), f->words);
    }
    close(all.reserved);
}

/* Also after the first mebibyte of the first file, which older checkpoints name alone. */
TEST(a_run_goes_on_with_its_token_files)
{
    write_shard("a.bin", 700000, -1);
    write_shard("b.bin", 700000, 600001);
    train_well("--tokens a.bin --val-data a.bin --vocab 90 %s --steps 2 --eval-every 0 "
               "--eval-batches 1 --out run");
    train_badly("--resume run --tokens b.bin --steps 3",
                "--tokens b.bin: the run in run/step-00000002 was trained on another text");
    train_well("--resume run --tokens a.bin --steps 3");
}

typedef struct other_model {
    const char *change; /* of the model of rank 1, a command */
    const char *option;
} other_model;

static const other_model other_models[] = {
    {"sed -i 's/\"rms_norm_eps\": [^,]*/\"rms_norm_eps\": 0.001/' config.json", "--init"},
    {"sed -i 's/\"version\"/\"version\" /' tokenizer.json", "--init"},
    {"cp ../../../second/step-00000002/model.safetensors . && rm checksums.xxh3", "--init"},
    {"cp ../../../second/step-00000002/*.safetensors . && rm checksums.xxh3", "--resume"},
};

/* Every rank has a model under the same name; that of rank 1 is another. */
LOOP_TEST(other_models_are_noticed, sizeof other_models / sizeof *other_models)
{
    const other_model *m = &other_models[_i];
    char arguments[300];
    train_well("--data text %s --accumulate 3 --steps 2 --out run");
    train_well("--data same %s --accumulate 3 --steps 2 --out second");
    shell("cd '%s' && mkdir a b && cp -r run a && cp -r run b && cd b/run/step-00000002 && "
          "cp config.json before && cp tokenizer.json then && %s",
          folder, m->change);
    ranks all = new_ranks();
    snprintf(arguments, sizeof arguments, "--data ../text %%s --steps 4 --timeout 20 %s run",
             m->option);
    for (int r = 0; r < RANKS; r++) {
        all.inside = r == 1 ? "b" : "a";
        begin_rank(&all, r, arguments);
    }
    for (int r = 0; r < RANKS; r++) {
        char name[16];
        snprintf(name, sizeof name, "err.%d", r);
        ck_assert_msg(end_of(&all, r) == 1, "%s", text_of(name));
        program_said(text_of(name), "this process differs from rank 0: the model is ");
    }
    close(all.reserved);
}

CHECK_MAIN_UNLESS(program_missing("gradus-train") || jansson_missing(), "other files", 0, set_up,
                  tear_down)
