/* test_rendezvous_interfaces.c - rank 0 listens at the interface of its address, and at all where the
 * others could not reach it there; ranks find each other at another one; texts of the options end. */
/* Build: all symbols. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, getifaddrs */
#include <ifaddrs.h>

#include "stranger.h"

/* Whether something listens at this address, of 127.0.0.0/8 or another interface. */
static bool is_open(struct in_addr host, int port)
{
    struct sockaddr_in a = port_address(port);
    const int wire = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr = host;
    const bool open = connect(wire, (struct sockaddr *)&a, sizeof a) == 0;
    close(wire);
    return open;
}

/* An address of this host that is no loopback address; false if it has none. */
static bool find_own(struct in_addr *own)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    ck_assert_int_eq(getifaddrs(&all), 0);
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
        struct sockaddr_in a;
        memcpy(&a, at->ifa_addr, sizeof a);
        found = ntohl(a.sin_addr.s_addr) >> 24 != 127;
        *own = a.sin_addr;
    }
    freeifaddrs(all);
    return found;
}

typedef struct place {
    const char *host; /* "": an address of this host */
    bool several_hosts;
    bool open[3]; /* at 127.0.0.1, 127.0.0.2, its other address */
    const char *notice;
} place;

static const place places[] = {
    {"127.0.0.1", false, {true, false, false}, ""},
    {"localhost", false, {true, false, false}, ""},
    {"127.0.0.2", false, {false, true, false}, ""},
    {"127.0.0.1",
     true,
     {true, true, true},
     " of all interfaces: 127.0.0.1 is a loopback address, and the ranks are on several hosts\n"},
    {"", true, {false, false, true}, ""},
    {"", false, {false, false, true}, ""},
    {"203.0.113.77",
     true,
     {true, true, true},
     " of all interfaces: 203.0.113.77 is not an address of this host\n"},
};
enum { PLACES = sizeof places / sizeof *places };

LOOP_TEST(rank_0_listens_where_its_address_is, PLACES)
{
    const place *p = &places[_i];
    struct in_addr at[3] = {{htonl(0x7f000001)}, {htonl(0x7f000002)}, {0}};
    const bool has_own = find_own(&at[2]);
    int port;
    if (!p->host[0] && !has_own) return;
    prepare(2, WITH_SECRET);
    close(group.listener);
    group.listener = 0;
    const int reserved = port_reserve(&port);
    group.port = port;
    group.several_hosts = p->several_hosts;
    snprintf(group.host, sizeof group.host, "%s", p->host[0] ? p->host : inet_ntoa(at[2]));
    const pid_t rank_0 = start(group, 0);
    bool listens = false;
    for (int i = 0; i < 1000 && !listens; i++) {
        for (int k = 0; k < 3; k++) listens = listens || (p->open[k] && is_open(at[k], port));
        ranks_sleep(0.005);
    }
    ck_assert(listens);
    for (int k = 0; k < (has_own ? 3 : 2); k++)
        ck_assert_msg(is_open(at[k], port) == p->open[k], "%s at address %d", p->host, k);
    kill(rank_0, SIGKILL);
    waitpid(rank_0, NULL, 0);
    ck_assert_msg(strstr(outcomes[0].notices, p->notice) != NULL, "%s", outcomes[0].notices);
    if (!p->notice[0]) ck_assert_str_eq(outcomes[0].notices, "");
    close(reserved);
}

/* Ranks reach each other, too, where all connections take another interface. */
TEST(a_group_meets_at_another_interface)
{
    struct in_addr own;
    int port;
    if (!find_own(&own)) return;
    prepare(3, WITH_SECRET);
    close(group.listener);
    group.listener = 0;
    const int reserved = port_reserve(&port);
    group.port = port;
    snprintf(group.host, sizeof group.host, "%s", inet_ntoa(own));
    pid_t child[3];
    for (int r = 0; r < 3; r++) child[r] = start(group, r);
    for (int r = 0; r < 3; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(!outcomes[r].error[0], "rank %d: %s", r, outcomes[r].error);
    close(reserved);
}

TEST(texts_that_do_not_end_are_refused)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    gd_group_options o[4] = {{.ranks = 2}, {.ranks = 2}, {.ranks = 2}, {.ranks = 2}}, all;
    memset(o[0].host, 'A', sizeof o->host);
    memset(o[1].run, 'A', sizeof o->run);
    memset(o[2].secret, 'A', sizeof o->secret);
    memset(o[3].problem, 'A', sizeof o->problem);
    memset(&all, 0xff, sizeof all);
    for (int i = 0; i < 5; i++) {
        REFUSED(gd_group_create(ctx, i < 4 ? &o[i] : &all),
                "group_create: a text of the options is not terminated");
    }
    gd_context_free(ctx);
}

CHECK_MAIN("rendezvous at interfaces", 0)
