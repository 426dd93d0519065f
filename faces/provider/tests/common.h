/* What the programs of libfabric beside this file share: two processes, each with an endpoint of the
 * provider petasos, that know each other's name and a line to talk by. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-function"

static const char *side = "?";
#define CHECK(what)                                                                     \
    do {                                                                                \
        if (!(what)) {                                                                  \
            fprintf(stderr, "%s, line %d: %s\n", side, __LINE__, #what);                 \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)
#define OK(call)                                                                        \
    do {                                                                                \
        ssize_t result_ = (call);                                                       \
        if (result_ < 0) {                                                              \
            fprintf(stderr, "%s, line %d: %s: %s\n", side, __LINE__, #call,              \
                    fi_strerror((int)-result_));                                        \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_cntr *counter;
static struct fid_ep *ep;
static fi_addr_t peer;
static char names[2][64];
/* To the other process. */
static int line;
static pid_t child;
static enum fi_progress progress = FI_PROGRESS_UNSPEC;
/* How addresses are carried, and where the endpoint is to be or whom it is to reach. */
static uint32_t format = FI_FORMAT_UNSPEC;
static const char *node, *service;
static uint64_t place_flags;
/* What order is asked for. */
static uint64_t order;

static void say(const void *what, size_t len) { CHECK(write(line, what, len) == (ssize_t)len); }
static void hear(void *what, size_t len)
{
    CHECK(recv(line, what, len, MSG_WAITALL) == (ssize_t)len);
}
/* Both are here; until then passes are made. */
static void meet(void)
{
    char c = 1;
    ssize_t got;
    say(&c, 1);
    while ((got = recv(line, &c, 1, MSG_DONTWAIT)) != 1) {
        CHECK(got < 0 && errno == EAGAIN);
        fi_cq_read(cq, NULL, 0);
    }
}

static int enable(void)
{
    struct fi_info *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("petasos");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    hints->caps |= FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
    hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    hints->domain_attr->data_progress = progress;
    if (getenv("SCALABLE")) hints->domain_attr->mr_mode = 0;
    hints->addr_format = format;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = order;
    OK(fi_getinfo(FI_VERSION(1, 17), node, service, place_flags, hints, &info));
    fi_freeinfo(hints);
    CHECK(!strcmp(info->fabric_attr->prov_name, "petasos") && info->domain_attr->cq_data_size == 8);
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    OK(fi_domain(fabric, info, &domain, NULL));
    struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
    OK(fi_av_open(domain, &av_attr, &av, NULL));
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
    OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
    struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
    OK(fi_cntr_open(domain, &cntr_attr, &counter, NULL));
    OK(fi_endpoint(domain, info, &ep, NULL));
    CHECK(fi_enable(ep) == -FI_ENOAV);
    OK(fi_ep_bind(ep, &av->fid, 0));
    OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    OK(fi_ep_bind(ep, &counter->fid, FI_RECV));
    /* What others do to memory is not counted. */
    CHECK(fi_ep_bind(ep, &counter->fid, FI_REMOTE_WRITE) == -FI_ENOSYS);
    /* An object of another kind. */
    CHECK(fi_ep_bind(ep, &domain->fid, 0) == -FI_EINVAL);
    return fi_enable(ep);
}

/* Opens everything, and exchanges names. */
static void start(void)
{
    OK(enable());
    size_t len = 3;
    CHECK(fi_getname(&ep->fid, names[0], &len) == -FI_ETOOSMALL && len == 64);
    OK(fi_getname(&ep->fid, names[0], &len));
    say(names[0], 64);
    hear(names[1], 64);
    CHECK(fi_av_insert(av, names[1], 1, &peer, 0, NULL) == 1);
}

static void stop(void)
{
    CHECK(fi_close(&domain->fid) == -FI_EBUSY && fi_close(&cq->fid) == -FI_EBUSY);
    OK(fi_close(&ep->fid));
    OK(fi_close(&counter->fid));
    OK(fi_close(&cq->fid));
    OK(fi_close(&av->fid));
    OK(fi_close(&domain->fid));
    OK(fi_close(&fabric->fid));
    fi_freeinfo(info);
}

/* The next completion; one with an error if `error` is not null. */
static struct fi_cq_tagged_entry next(struct fi_cq_err_entry *error)
{
    struct fi_cq_tagged_entry entry;
    for (;;) {
        ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1) {
            CHECK(!error);
            return entry;
        }
        if (got == -FI_EAVAIL) {
            struct fi_cq_err_entry found = { 0 };
            CHECK(fi_cq_readerr(cq, &found, 0) == 1);
            if (!error) {
                fprintf(stderr, "%s: %s: %s\n", side, fi_strerror(found.err),
                        fi_cq_strerror(cq, found.prov_errno, NULL, NULL, 0));
                exit(1);
            }
            *error = found;
            CHECK(strlen(fi_cq_strerror(cq, found.prov_errno, NULL, NULL, 0)) > 0);
            entry.op_context = found.op_context;
            return entry;
        }
        CHECK(got == -FI_EAGAIN);
    }
}

#define AGAIN(call)                                                                     \
    do {                                                                                \
        ssize_t result_;                                                                \
        while ((result_ = (call)) == -FI_EAGAIN) fi_cq_read(cq, NULL, 0);               \
        OK(result_);                                                                    \
    } while (0)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static char big[2][3 << 20];
static void fill(size_t len, int seed)
{
    for (size_t k = 0; k < len; k++) big[0][k] = (char)(k * 7 + seed);
}
static int is_filled(size_t len, int seed)
{
    for (size_t k = 0; k < len; k++) if (big[1][k] != (char)(k * 7 + seed)) return 0;
    return 1;
}

struct test {
    const char *name;
    void (*run)(int first);
};

/* Runs the test that the argument names, in two processes. Says "ok", or which line was not as it
 * should be. */
static int run(const struct test *all, size_t number, int count, char **args)
{
    int lines[2];
    CHECK(count == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, lines));
    CHECK((child = fork()) >= 0);
    int first = child > 0;
    side = first ? "first" : "second";
    line = lines[!first];
    close(lines[first]);
    alarm(50);
    /* The second one is on another host, if there is one: a network namespace. */
    const char *host = getenv("SECOND_HOST");
    if (host && !first) {
        int space = open(host, O_RDONLY);
        CHECK(space >= 0 && !setns(space, CLONE_NEWNET) && !close(space));
    }
    for (size_t k = 0; k < number; k++)
        if (!strcmp(all[k].name, args[1])) {
            all[k].run(first);
            int status = 0;
            if (first && child) CHECK(waitpid(child, &status, 0) == child && status == 0);
            if (first) puts("ok");
            return 0;
        }
    return 2;
}
