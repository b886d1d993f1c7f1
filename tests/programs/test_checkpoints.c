/* test_checkpoints.c - gradus-train saved, stopped, killed and resumed: the same bits as without an
 * interruption, and never half a checkpoint. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen, nanosleep */
#include "check_main.h"
#include "runs.h"

/* Every file of both is the same, byte by byte. */
static void assert_same(const char *a, const char *b)
{
    shell("diff -r %s %s", a, b);
}

static void assert_same_weights(const char *a, const char *b)
{
    shell("cmp %s/model.safetensors %s/model.safetensors", a, b);
}

/* ---- Resuming ----------------------------------------------------------------------------- */

LOOP_TEST(a_resumed_run_has_the_same_bits, test_brief() ? 3 : 5)
{
    static const char *const kinds[] = {"", "--dtype f64 --tied", "--recompute --clip 0",
                                        "--dtype f16 --tied --recompute",
                                        "--dtype bf16 --accumulate 3 --clip 0"};
    train_well("--data text $small %s --steps 24 --checkpoint-every 8 --keep 0 --out a", kinds[_i]);
    ck_assert(exists("a/step-00000008") && exists("a/step-00000016") && exists("a/step-00000024"));
    train_well("--resume a/step-00000008 --out b");
    program_said(output, "from   a/step-00000008");
    assert_same("a/step-00000016", "b/step-00000016");
    assert_same("a/step-00000024", "b/step-00000024");
    train_well("--resume auto --out b"); /* nothing is left to do */
    program_said(output, "from   b/step-00000024\n       which has done 24 of 24 steps");
    ck_assert_ptr_null(strstr(output, "\nstep "));
    train_well("--data text $small --steps 3 --resume auto --out new"); /* there is none yet */
    program_said(output, "--resume auto: there is no checkpoint in new: a new run begins\n");
    ck_assert(exists("new/step-00000003"));
}

/* The text in three pieces, named by the run or again; the state has the names, the
 * model has not. */
TEST(a_run_of_several_files_is_resumed)
{
    static const char *const ways[] = {"",
                                       " --data 1 2 3",
                                       " --data 1 --data '2|3'",
                                       " --data '[123]'",
                                       " --data pieces",
                                       " --data text"};
    char line[256];
    shell("head -c 999 text >1 && tail -c +1000 text | head -c 501 >2 && tail -c +1501 text >3 && "
          "cat 1 2 3 | cmp - text && mkdir pieces && cp 1 2 3 pieces");
    train_well(
        "--data 1 2 3 --val-data 2 1 $small --steps 24 --checkpoint-every 8 --keep 0 --out a");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        train_well("--resume a/step-00000008%s --out b%d", ways[i], (int)i);
        snprintf(line, sizeof line, "b%d/step-00000024", (int)i);
        if (i < 3)
            assert_same("a/step-00000024", line);
        else
            assert_same_weights("a/step-00000024", line);
    }
    train_badly("--resume a/step-00000008 --data 2 1 3",
                "--data 2|1|3: the run in a/step-00000008 was trained on another text; --init ");
    train_badly("--resume a/step-00000008 --data 1 2",
                "--data 1|2: the run in a/step-00000008 was ");
    train_badly("--resume a/step-00000008 --data 1 2 3 3", "3 and 3 are the same file");
    shell("mv 2 two");
    train_badly("--resume a/step-00000008", "the run's --data 2: No such file or directory");
    shell("tr abcde edcba <two >2");
    train_badly("--resume a/step-00000008",
                "the run's --data 1|2|3: the run in a/step-00000008 was trained on another text");
}

/* What was measured in these steps (a regular expression), without the time it took. */
static void assert_same_lines(const char *a, const char *b, const char *steps)
{
    shell("for run in %s %s; do grep -E '^.\"step\": (%s),' $run/log.jsonl | sed 's/, \"ms\".*//' "
          ">$run/measured; done; test -s %s/measured && cmp %s/measured %s/measured",
          a, b, steps, a, a, b);
}

TEST(a_resumed_run_has_the_same_log)
{
    train_well("--data text $small --steps 24 --log-every 1 --out a");
    train_well("--data text $small --steps 24 --log-every 1 --out b --checkpoint-every 8 --keep 0");
    train_well("--resume b/step-00000008 --out b --steps 24"); /* steps 9 to 24 once more */
    assert_same_lines("a", "b", ".*");
    shell("printf '{\"step\": 25, \"loss\": 1.' >>b/log.jsonl");
    train_well("--resume auto --out b");
    shell("test $(grep -c . b/log.jsonl) = 27"); /* 24 steps, 3 beginnings */
    shell("cp text b/log.jsonl");
    train_badly("--resume auto --out b", "b/log.jsonl was not changed: it is not a log of");
    shell("cmp text b/log.jsonl");
}

/* A line shows the mean loss since the one before. A run that was stopped between two of them, also
 * by the time, after which it has a line more, goes on with the same means. */
LOOP_TEST(a_resumed_run_has_the_same_means, 3)
{
    static const char *const stops[] = {"--steps 8", "--max-seconds 0.000001",
                                        "--checkpoint-every 8 --keep 0"};
    train_well("--data text $small --steps 24 --log-every 5 --schedule constant --out a");
    train_well("--data text $small --steps 24 --log-every 5 --schedule constant --out b %s",
               stops[_i]);
    train_well("--resume b/step-0000000%d --steps 24 --out b", _i == 1 ? 1 : 8);
    assert_same_lines("a", "b", "5|7|10|14|15|20|21|24");
}

TEST(given_options_override_those_of_the_checkpoint)
{
    train_well("--data text $small --steps 4 --out a");
    train_well(
        "--resume a/step-00000004 --out b --steps 5 --lr 0.0002"); /* its tenth, not the run's */
    program_said(output, "lr 0.0002 to 2e-05 (cosine)");
    train_well("--resume a/step-00000004 --out a --steps 6 --lr 0.003 --min-lr 0.001");
    program_said(output, "6 steps of 1 x 4 x 12 tokens, lr 0.003 to 0.001");
    train_badly("--resume a --steps 7 --lr 0.0005",
                "--min-lr is 0.001 in the run that is resumed, wanted at most --lr, 0.0005\n");
    train_well("--resume a --steps 7 --lr 0.002 --layers 2");
    program_said(output, "lr 0.002 to 0.001 (cosine)");
    program_said(output, "2 layers, dim 16, 4 heads, 2 kv heads, ffn 24, context 12, dropout 0.1");
    train_badly("--resume a/step-00000007 --layers 3",
                "--layers is 3, but the model in a/step-00000007 has 2\n");
    train_badly("--resume a/step-00000007 --tied",
                "--tied is true, but the model in a/step-00000007 has false");
    train_badly("--resume a/step-00000007 --data other",
                "which is not in the vocabulary of the model");
    train_badly("--resume a/step-00000007 --data same", "was trained on another text; --init");
}

/* A run's folder means its newest complete checkpoint; a run resumed from it continues there. */
TEST(the_folder_of_a_run_means_its_newest_checkpoint)
{
    train_well("--data text $small --schedule constant --steps 8 --checkpoint-every 4 --out a");
    train_well("--resume a/ --steps 12 --checkpoint-every 0");
    program_said(output, "from   a/step-00000008\n");
    program_said(output, "saved a/step-00000012\n");
    train_well("--data text $small --schedule constant --steps 12 --out b");
    assert_same_weights("a/step-00000012", "b/step-00000012");
    train_well("--data same --init a --steps 1 --context 8 --out c");
    program_said(output, "from   a/step-00000012\n");
    train_well("--resume a/step-00000012 --steps 13"); /* of one checkpoint, as ever, only --out */
    ck_assert(!exists("a/step-00000013"));
    shell("rm a/step-00000012/state.safetensors");
    train_well("--data same --init a --steps 1 --context 8 --out d");
    program_said(output, "from   a/step-00000012\n"); /* its weights are whole */
    train_badly("--resume a/step-00000012", "has no state.safetensors, which is needed to resume");
    train_well("--resume a --dry-run");
    program_said(output, "a/step-00000012 is skipped: safetensors_open: ");
    program_said(output, "from   a/step-00000008\n");
    shell("rm a/*/config.json");
    train_badly("--resume a", "--resume a: it has neither a model (config.json) nor a complete");
}

TEST(runs_do_not_mix)
{
    train_well("--data text $small --steps 8 --checkpoint-every 4 --out a");
    train_badly("--data text $small --steps 2 --out a",
                "--out a: it holds the checkpoints of a run, up to step 8; use --resume auto to "
                "continue it");
    train_badly("--data text --init a --steps 2 --out a", "--out a: it holds the checkpoints of");
    ck_assert(exists("a/step-00000004") && exists("a/step-00000008"));
    train_well("--data text $small --steps 8 --out a --dry-run");
    train_well("--data text $small --steps 8 --out b --dry-run");
    train_well("--data text $small --steps 1 --out c/d/e"); /* made with all that it is in */
    ck_assert(exists("c/d/e/step-00000001"));
    ck_assert(!exists("b"));
    /* One that goes back keeps what it saves, not only what is newer. */
    train_well("--resume a/step-00000004 --out a --steps 5 --keep 1");
    ck_assert(exists("a/step-00000005"));
}

/* --vocab is not needed if the model has it. */
TEST(ids_of_a_model)
{
    shell("cp -r '%s/files/llama/grouped' llama", GRADUS_TEST_DIR);
    shell("head -c 4000 /dev/zero >ids");
    train_well("--tokens ids --val-data ids --init llama --context 16 --steps 2 --out ids_run "
               "--sample-length 3");
    program_said(output, "ids: 2000 tokens (ids, 24 different), 2000 more for validation");
    train_well("--resume ids_run --steps 3 --sample-length 3");
    program_said(output, "(ids, 24 different)");
    /* Ids that differ in their second byte alone are another text. */
    shell("head -c 4000 /dev/zero | tr '\\000' '\\001' >ones");
    train_well("--tokens ones --val-data ones --vocab 258 --steps 1 --out wide_run");
    shell("for i in $(seq 2000); do printf '\\001\\000'; done >ones");
    train_badly("--resume wide_run --steps 2", "was trained on another text");
    train_badly("--tokens ids --val-data ids --init llama --vocab 25 --context 16",
                "has 25 different tokens, but the model in llama has only 24");
}

/* As transformers writes it again, and with parts that would change what it does. */
TEST(a_tokenizer_that_others_have_written)
{
    static const struct {
        const char *change;
        bool same;
    } rows[] = {
        {"s/^{$/{\"truncation\": null, \"normalizer\": null, \"post_processor\": {\"single\": "
         "[{\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {}},/; "
         "s/\"type\": \"BPE\",/\"type\": \"BPE\", \"dropout\": null, \"fuse_unk\": false,/",
         true},
        {"s/  */ /g", true},
        {"1s/^/\\xef\\xbb\\xbf/", true}, /* a byte order mark */
        {"s/\"Isolated\"/\"Removed\"/", false},
        {"s/^{$/{\"normalizer\": {\"type\": \"Lowercase\"},/", false},
        {"s/^{$/{\"post_processor\": {\"special_tokens\": {\"<s>\": {}}},/", false},
        {"s/\"type\": \"BPE\",/\"type\": \"BPE\", \"dropout\": 0.1,/", false},
        {"s/\"decoder\"/\"coder\"/", false},
        {"s/\"a\": 97/\"a\": 98/; s/\"b\": 98/\"b\": 97/", false},
    };
    train_well("--data text --vocab 280 $small --steps 3 --out pieces");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shell("cp -r pieces/step-00000003 changed && rm -f changed/checksums.xxh3 && sed -i '%s' "
              "changed/tokenizer.json",
              rows[i].change);
        if (rows[i].same)
            train_well("--data text --init changed --steps 0");
        else
            train_badly("--data text --init changed --steps 0", "is not a tokenizer of this pro");
        shell("rm -r changed");
    }
}

/* The bytes of a text are not ids of a model's own tokenizer. */
TEST(a_text_needs_the_tokenizer_of_the_model)
{
    static const struct {
        const char *others, *wanted;
    } rows[] = {
        {"",
         "m has no tokenizer.json of gradus-train, which a text needs; --tokens takes token ids"},
        {"tokenizer.model", "m has tokenizer.model, but no tokenizer.json of gradus-train, which"},
        {"vocab.json m/merges.txt", "m has vocab.json, merges.txt, but no tokenizer.json of"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shell("rm -rf m && cp -r %s/files/llama/grouped m && touch m/x m/%s", GRADUS_TEST_DIR,
              rows[i].others);
        train_badly("--data text --init m --context 12 --steps 1 --out n", rows[i].wanted);
        train_badly("--data text --vocab 300 --init m --context 12 --steps 1", rows[i].wanted);
    }
    train_well("--data text $small --steps 1 --out run");
    shell("rm run/*/tokenizer.json run/*/checksums.xxh3");
    train_badly("--resume run --steps 2",
                "run/step-00000001 has tokenizer_config.json, but no tok");
    train_badly("--data text --init run --steps 2", "but no tokenizer.json of gradus-train");
}

TEST(weights_begin_a_new_run)
{
    train_well("--data text $small --steps 8 --out a");
    train_well("--data same --init a/step-00000008 --steps 2 --context 8 --eval-every 0 --out b "
               "--sample-length 20");
    program_said(output, "2 layers, dim 16, 4 heads, 2 kv heads, ffn 24, context 8, dropout 0");
    program_said(output, "step 2/2");
    /* The pieces are those that the weights know, whatever the text. */
    train_well("--data text --vocab 280 $small --steps 3 --out pieces");
    train_well("--data other --init pieces/step-00000003 --steps 1 --context 8 --out c");
    train_badly("--data other --init pieces/step-00000003 --vocab 300",
                "--vocab and --init cannot be used together: the vocabulary");
    train_badly("--resume pieces/step-00000003 --vocab 300",
                "--vocab is 300, but the model in pieces/step-00000003 has 280");
    shell("cmp pieces/step-00000003/tokenizer.json c/step-00000001/tokenizer.json");
    train_badly("--data text --init no/such", "--init no/such: No such file or directory");
    train_badly("--data text --init text", "--init text: Not a directory");
    train_badly("--data text --init .", "--init .: it has neither a model (config.json) nor");
}

/* A model of others (tests/files/llama), of more tokens than the text has. */
LOOP_TEST(the_weights_of_others_can_be_trained_on, 4)
{
    static const char *const models[] = {"grouped", "tied", "bfloat16", "sharded"};
    write_tokens("ids", 24, 8000);
    train_well(
        "--tokens ids --val-data ids --init %s/files/llama/%s --steps 30 --lr 0.01 --warmup 2 "
        "--context 12 "
        "--log-every 1 --eval-every 0 --sample-length 8 --out b",
        GRADUS_TEST_DIR, models[_i]);
    double first = strtod(strstr(output, "| loss ") + 7, NULL);
    double last = strtod(strstr(output, "step 30/30 | loss ") + 18, NULL);
    ck_assert_double_lt(last, 0.7 * first);
    train_well("--resume auto --out b --steps 31"); /* eps and theta are in the folder */
    ck_assert_double_lt(strtod(strstr(output, "step 31/31 | loss ") + 18, NULL), 0.8 * first);
}

/* A checkpoint keeps the name of the text in JSON, and gives no control characters back. */
TEST(names_that_a_checkpoint_can_keep)
{
    static const char *const bad[][2] = {
        {"a\tb", "a\\x09b"}, {"a\xff", "a\\xff"}, {"\xc2\x85", "\\u0085"}};
    char line[256], wanted[128];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(bad[i][0], "abcde \n");
        snprintf(line, sizeof line, "--data '%s' $small --steps 1 --out a", bad[i][0]);
        snprintf(wanted, sizeof wanted, "--data is \"%s\", wanted UTF-8 without control characters",
                 bad[i][1]);
        train_badly(line, wanted);
        ck_assert(!exists("a/log.jsonl"));
        train_well("--data '%s' $small --steps 1", bad[i][0]);
    }
    write_text("\xc3\xa9 \"\\", "abcde \n");
    train_well("--data '\xc3\xa9 \"\\' $small --steps 1 --out a");
    train_well("--resume auto --out a --steps 2");
    program_said(output, "text   \xc3\xa9 \"\\: ");
}

/* A line break is written as U+010A and a space as U+0120, as in GPT-2's vocabulary. */
TEST(the_tokenizer_lies_beside_the_model)
{
    train_well("--data text $small --steps 1 --out a");
    program_said(text_of("a/step-00000001/tokenizer.json"),
                 "\"vocab\": {\n      \"\xc4\x8a\": 0,\n      \"\xc4\xa0\": 1,\n"
                 "      \"a\": 2,\n      \"b\": 3,\n      \"c\": 4,\n      \"d\": 5,\n"
                 "      \"e\": 6\n    },\n    \"merges\": []\n");
    train_well("--data text --vocab 300 $small --steps 1 --out b");
    const char *tokenizer = text_of("b/step-00000001/tokenizer.json");
    program_said(tokenizer, "\"Regex\": \" ?[^\\\\x00-\\\\x40");
    program_said(tokenizer, "      \"\xc4\x80\": 0,\n"); /* byte 0 is U+0100 */
    program_said(tokenizer, "      \"\\\"\": 34,\n");
    program_said(tokenizer, "      \"\xc3\xbf\": 255,\n");
    program_said(tokenizer, "\"merges\": [\n      [\"");
    ck_assert_int_eq(count_lines(strstr(tokenizer, "\"merges\"")), 300 - 256 + 3);
}

TEST(some_are_kept)
{
    train_well("--data text $small --steps 1");
    program_said(output, "\nout    none: no checkpoint is saved without --out DIR\n");
    train_well(
        "--data text $small --steps 20 --checkpoint-every 2 --keep 3 --keep-every 6 --out a");
    program_said(output, "\nout    a: a checkpoint every 2 steps and at the end, the newest 3 are "
                         "kept, and those of every 6 steps\n");
    for (int step = 1; step <= 20; step++) {
        char name[32];
        snprintf(name, sizeof name, "a/step-%08d", step);
        bool kept = step % 2 == 0 && (step > 14 || step % 6 == 0);
        ck_assert_msg(exists(name) == kept, "%s is %s", name, kept ? "gone" : "there");
    }
    ck_assert(!exists("a/.saving") && !exists("a/.removing"));
}

/* Otherwise the disk would have the space of one that is removed only after the run. */
TEST(a_resumed_run_lets_its_checkpoint_go)
{
    train_well("--data text $small --steps 4 --out a");
    pid_t child = begin("--resume auto --out a --steps 1000000 --checkpoint-every 5 --keep 1000");
    wait_for("a/step-00000005");
    shell("! ls -l /proc/%d/fd | grep -F a/step-00000004", (int)child); /* Linux alone */
    stop_well(child, SIGTERM);
}

/* ---- Stopping ----------------------------------------------------------------------------- */

/* `timeout` and some schedulers signal a program and then its group: that is one request. Two
 * signals that wait for a program arrive at once, however busy the machine is. */
LOOP_TEST(signals_save_and_leave, test_brief() ? 3 : 5)
{
    static const int numbers[][2] = {
        {SIGINT, 0}, {SIGTERM, 0}, {SIGINT, SIGTERM}, {SIGTERM, SIGHUP}, {SIGHUP, SIGINT}};
    pid_t child =
        begin("--data text $small --steps 1000000 --checkpoint-every 5 --keep 1000 --out a %s",
              numbers[_i][1] ? "--dim 64 --batch 16 --context 64" : "");
    wait_for("a/step-00000005");
    kill(child, SIGSTOP);
    for (int k = 0; k < 2; k++)
        if (numbers[_i][k]) kill(child, numbers[_i][k]);
    kill(child, SIGCONT);
    ck_assert_int_eq(end_of(child), 0);
    train_well("--resume auto --out a --max-seconds 0.01"); /* what it saved is whole */
    program_said(output, "from   a/step-");
}

/* In the midst of a step that takes longer than anybody waits. */
TEST(a_second_signal_ends_it_at_once)
{
    pid_t child = begin("--data text --layers 8 --dim 256 --context 512 --batch 1024 --steps 9 "
                        "--log-every 1 --out a");
    wait_for("a/log.jsonl");
    nap(100);
    kill(child, SIGINT);
    nap(200);
    kill(child, SIGINT);
    ck_assert_int_eq(end_of(child), 128 + SIGINT);
}

/* SIGKILL at any moment, saving or not; whatever it leaves, the run comes to the same end. */
TEST(killed_again_and_again)
{
    train_well("--data text $small --steps 60 --checkpoint-every 60 --out whole");
    int killed = 0;
    for (int i = 0; i < 200; i++) {
        pid_t child =
            begin("--data text $small --steps 60 --checkpoint-every 1 --resume auto --out a");
        nap(8 + i * 7 % 23 + i / 8);
        kill(child, SIGKILL);
        if (end_of(child) != 128 + SIGKILL) break;
        killed++;
        if (i > 6 && exists("a/step-00000060")) break;
    }
    train_well("--data text $small --steps 60 --checkpoint-every 1 --resume auto --out a");
    printf("killed %d times before the end\n", killed);
    ck_assert_int_gt(killed, 0);
    shell("cmp whole/step-00000060/model.safetensors a/step-00000060/model.safetensors");
    ck_assert_ptr_null(strstr(output, " is skipped: "));
}

/* The steps skipped before the break count towards --skip-nonfinite. */
TEST(skipped_steps_are_counted_across_a_resume)
{
    static const char wild[] = " is skipped: ";
    int count = 0;
    train_well("--data text --layers 1 --dim 8 --heads 1 --context 8 --lr 1000 --weight-decay 100 "
               "--warmup 0 --clip 0 --steps 12 --skip-nonfinite 20 --out a --sample-length 0");
    for (const char *at = output; (at = strstr(at, wild)); at++) count++;
    ck_assert_int_gt(count, 0);
    ck_assert_int_le(count, 12);
    train_badly("--resume auto --out a --steps 100", "wanted finite numbers");
    for (const char *at = output; (at = strstr(at, wild)); at++) count++;
    ck_assert_int_eq(count, 20);
}

CHECK_MAIN_UNLESS(program_missing("gradus-train"), "checkpoints", set_up, leave_folder)
