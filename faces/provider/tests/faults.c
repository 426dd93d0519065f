/* Programs of libfabric over the provider petasos, of which something goes wrong in the middle. All
 * that was accepted ends, with an error that says why or without one, within a bounded time. */
#include "common.h"
#include <sys/resource.h>

/* How long anything may take, in seconds. */
static const double SOON = 20;

/* The next completion, or error, if one comes before that time: 1, -1, or 0. */
static int next_before(double end, struct fi_cq_err_entry *error)
{
    struct fi_cq_tagged_entry entry;
    do {
        ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1) return 1;
        if (got == -FI_EAVAIL) {
            memset(error, 0, sizeof *error);
            CHECK(fi_cq_readerr(cq, error, 0) == 1);
            CHECK(error->err > 0);
            CHECK(strlen(fi_cq_strerror(cq, error->prov_errno, error->err_data, NULL, 0)) > 10);
            return -1;
        }
        CHECK(got == -FI_EAGAIN);
    } while (now() < end);
    return 0;
}

static char memory[4 << 20];
static struct { uint64_t at, key; } theirs;
static struct fid_mr *mr;

static void open_memory(void)
{
    struct { uint64_t at, key; } mine;
    OK(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr,
                 NULL));
    mine.at = (uint64_t)memory;
    mine.key = fi_mr_key(mr);
    say(&mine, sizeof mine);
    hear(&theirs, sizeof theirs);
}

/* Begins the operation of this number; 1 if it was accepted. */
static int begin(int nth)
{
    static uint64_t one = 1, old[64];
    ssize_t begun = -1;
    switch (nth % 7) {
    case 0: begun = fi_tsend(ep, big[0], 100, NULL, peer, 1, NULL); break;
    case 1: begun = fi_tsend(ep, big[0], 1 << 20, NULL, peer, 2, NULL); break;
    case 2: begun = fi_write(ep, big[0], 3 << 20, NULL, peer, theirs.at, theirs.key, NULL); break;
    case 3: begun = fi_read(ep, big[1], 3 << 20, NULL, peer, theirs.at, theirs.key, NULL); break;
    case 4:
        begun = fi_fetch_atomic(ep, &one, 1, NULL, &old[nth / 7 % 64], NULL, peer, theirs.at,
                                theirs.key, FI_UINT64, FI_SUM, NULL);
        break;
    case 5: begun = fi_trecv(ep, big[1], 100, NULL, peer, 1, 0, NULL); break;
    case 6: begun = fi_trecv(ep, big[1], 1 << 20, NULL, peer, 2, 0, NULL); break;
    }
    return begun == 0;
}

/* Both are busy with each other; the second one does not survive it. */
static void busy(int first)
{
    struct fi_cq_err_entry error;
    start();
    open_memory();
    int accepted = 0, ended = 0, failed = 0, seen;
    if (!first) {
        for (int k = 0;; k++) {
            begin(k);
            next_before(0, &error);
        }
    }
    for (int k = 0; k < 70 || ended < 30; k++) {
        accepted += begin(k);
        CHECK((seen = next_before(0, &error)) >= 0);
        ended += seen;
    }
    CHECK(!kill(child, SIGKILL));
    double end = now() + SOON;
    for (int k = 0; k < 70; k++) {
        accepted += begin(k);
        next_before(0, &error) ? ended++ : 0;
    }
    while (ended < accepted) {
        CHECK((seen = next_before(end, &error)) != 0);
        ended++;
        failed += seen < 0;
    }
    CHECK(failed > 0 && next_before(0, &error) == 0);
    /* The endpoint is good for others, such as itself. */
    fi_addr_t self;
    CHECK(fi_av_insert(av, names[0], 1, &self, 0, NULL) == 1);
    OK(fi_trecv(ep, big[1], 8, NULL, self, 9, 0, NULL));
    AGAIN(fi_tinject(ep, "to self", 8, self, 9));
    CHECK(next_before(end, &error) == 1 && !strcmp(big[1], "to self"));
    CHECK(waitpid(child, NULL, 0) == child);
    child = 0;
    OK(fi_close(&mr->fid));
    stop();
}

/* The second one is stopped in the middle. All calls return; the end of memory in which it is, and
 * of the endpoint, waits for a bounded time, says so, and succeeds later. */
static void halted(int first)
{
    struct fi_cq_err_entry error;
    start();
    open_memory();
    if (!first) {
        for (int k = 0;; k++) {
            begin(k);
            next_before(0, &error);
        }
    }
    for (int k = 0; k < 70; k++) {
        begin(k);
        CHECK(next_before(0, &error) >= 0);
    }
    CHECK(!kill(child, SIGSTOP) && waitpid(child, NULL, WUNTRACED) == child);
    double began = now();
    for (int k = 0; k < 2000; k++) {
        begin(k);
        CHECK(next_before(0, &error) >= 0);
    }
    CHECK(now() - began < SOON);
    fi_addr_t self;
    static uint64_t number, old;
    CHECK(fi_av_insert(av, names[0], 1, &self, 0, NULL) == 1);
    AGAIN(fi_tsend(ep, &number, 8, NULL, self, 1ull << 40, NULL));
    OK(fi_trecv(ep, &old, 8, NULL, self, 1ull << 40, 0, NULL));
    began = now();
    int closed = fi_close(&mr->fid);
    CHECK((closed == 0 || closed == -FI_EBUSY) && now() - began < SOON);
    began = now();
    int left = fi_close(&ep->fid);
    CHECK((left == 0 || left == -FI_EBUSY) && now() - began < SOON);
    CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
    child = 0;
    if (left) OK(fi_close(&ep->fid));
    if (closed) OK(fi_close(&mr->fid));
    OK(fi_close(&counter->fid));
    OK(fi_close(&cq->fid));
    OK(fi_close(&av->fid));
    OK(fi_close(&domain->fid));
    OK(fi_close(&fabric->fid));
}

/* Takes all descriptors that this process may still have, or gives them back. */
static void take_descriptors(int take)
{
    static int taken[100], count;
    if (take) {
        while ((taken[count] = dup(0)) >= 0) CHECK(++count < 100);
        CHECK(errno == EMFILE);
    } else {
        while (count > 0) CHECK(!close(taken[--count]));
    }
}

/* Either side has no descriptors left when they are to meet: an error that says so, not before the
 * other side had time to end that; later they meet. */
static void descriptors(int first)
{
    struct fi_cq_err_entry error;
    struct rlimit few = { 80, 80 };
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    start();
    for (int round = 0; round < 2; round++) {
        /* The first one sends in both rounds; who lacks descriptors changes. */
        int mine = first == (round == 0);
        if (mine) {
            take_descriptors(1);
            struct fid_ep *another;
            struct fid_cq *queue = NULL;
            struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
            CHECK(fi_cq_open(domain, &attr, &queue, NULL) == -FI_EMFILE);
            OK(fi_endpoint(domain, info, &another, NULL));
            OK(fi_ep_bind(another, &av->fid, 0));
            OK(fi_ep_bind(another, &cq->fid, FI_TRANSMIT | FI_RECV));
            CHECK(fi_enable(another) < 0);
            OK(fi_close(&another->fid));
        }
        meet();
        if (first) {
            double began = now();
            AGAIN(fi_tsend(ep, "hello", 6, NULL, peer, 5, NULL));
            int came = next_before(began + SOON, &error);
            CHECK(came != 0);
            fprintf(stderr, "round %d: %s after %.1f s: %s\n", round,
                    came > 0 ? "sent" : fi_strerror(error.err), now() - began,
                    came > 0 ? "" : fi_cq_strerror(cq, error.prov_errno, NULL, NULL, 0));
            meet();
            if (mine) take_descriptors(0);
            meet();
            began = now();
            do {
                ssize_t sent = fi_tsend(ep, "hello", 6, NULL, peer, 6, NULL);
                CHECK(sent == 0 || sent == -FI_EAGAIN);
                came = sent == 0 ? next_before(began + SOON, &error) : 0;
                CHECK(now() - began < SOON);
            } while (came != 1);
            meet();
        } else {
            meet();
            if (mine) take_descriptors(0);
            meet();
            OK(fi_trecv(ep, big[1], 6, NULL, FI_ADDR_UNSPEC, 6, 0, NULL));
            CHECK(next_before(now() + SOON, &error) == 1 && !strcmp(big[1], "hello"));
            meet();
        }
    }
    stop();
}

/* More memory is registered than an endpoint takes: it says so, and all of it can be closed again. */
static void registered(int first)
{
    enum { MOST = 65536 };
    static struct fid_mr *all[MOST + 1];
    if (!first) return;
    OK(enable());
    OK(fi_close(&ep->fid));
    /* Without an endpoint there is no limit, so the next one has none. */
    for (size_t k = 0; k <= MOST; k++)
        OK(fi_mr_reg(domain, memory + k, 1, FI_REMOTE_READ, 0, k, 0, &all[k], NULL));
    OK(fi_endpoint(domain, info, &ep, NULL));
    OK(fi_ep_bind(ep, &av->fid, 0));
    OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    CHECK(fi_enable(ep) == -FI_ENOMEM);
    OK(fi_close(&all[MOST]->fid));
    OK(fi_enable(ep));
    CHECK(fi_mr_reg(domain, memory, 1, FI_REMOTE_READ, 0, MOST, 0, &all[MOST], NULL) == -FI_ENOMEM);
    for (size_t k = 0; k < MOST; k++) OK(fi_close(&all[k]->fid));
    stop();
}

int main(int count, char **args)
{
    static const struct test all[] = {
        { "busy", busy },
        { "halted", halted },
        { "descriptors", descriptors },
        { "registered", registered },
    };
    return run(all, sizeof all / sizeof *all, count, args);
}
