/* Ranks of a job that talk by libfabric's provider petasos, and a stranger that tries to.
 *
 *   members member DIR          opens an endpoint, leaves its name in DIR, and exchanges messages
 *                               with the other ranks; ends when there is DIR/stop
 *   members stranger DIR        sends to the endpoint of rank 0
 *   members forger DIR          the same, under a name that says it were of this one's job
 */
#include <fcntl.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                       \
    do {                                                                  \
        if (!(what)) {                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);            \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

static struct fid_ep *ep;
static struct fid_av *av;
static struct fid_cq *cq;

static void open_all(char name[64])
{
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->fabric_attr->prov_name = strdup("petasos");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    CHECK(!fi_fabric(info->fabric_attr, &fabric, NULL));
    CHECK(!fi_domain(fabric, info, &domain, NULL));
    struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
    CHECK(!fi_av_open(domain, &av_attr, &av, NULL));
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
    CHECK(!fi_cq_open(domain, &cq_attr, &cq, NULL));
    CHECK(!fi_endpoint(domain, info, &ep, NULL));
    CHECK(!fi_ep_bind(ep, &av->fid, 0) && !fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    int enabled = fi_enable(ep);
    if (enabled) {
        printf("not enabled: %s\n", fi_strerror(-enabled));
        exit(3);
    }
    size_t len = 64;
    CHECK(!fi_getname(&ep->fid, name, &len) && len == 64);
}

static void path_of(char *path, const char *dir, const char *what, int nth)
{
    snprintf(path, 500, "%s/%s-%d", dir, what, nth);
}

static int read_name(const char *dir, int rank, char name[64])
{
    char path[500];
    path_of(path, dir, "name", rank);
    int file = open(path, O_RDONLY);
    if (file < 0) return 0;
    CHECK(read(file, name, 64) == 64);
    close(file);
    return 1;
}

/* Makes progress for so many seconds at most; 1: a completion, 0: none, -1: an error, told. */
static int next(int seconds)
{
    time_t end = time(NULL) + seconds;
    struct fi_cq_tagged_entry entry;
    while (time(NULL) <= end) {
        ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1) return 1;
        if (got == -FI_EAVAIL) {
            struct fi_cq_err_entry error = { 0 };
            CHECK(fi_cq_readerr(cq, &error, 0) == 1);
            printf("error: %s: %s\n", fi_strerror(error.err),
                   fi_cq_strerror(cq, error.prov_errno, error.err_data, NULL, 0));
            return -1;
        }
        CHECK(got == -FI_EAGAIN);
    }
    return 0;
}

static void member(const char *dir)
{
    int rank = atoi(getenv("PETASOS_RANK")), size = atoi(getenv("PETASOS_SIZE"));
    char name[64], path[500], done[500];
    open_all(name);
    path_of(path, dir, "new", rank);
    path_of(done, dir, "name", rank);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(write(file, name, 64) == 64 && !close(file) && !rename(path, done));
    enum { LEN = 1 << 20 };
    static char out[LEN], in[LEN];
    for (int k = 0; k < LEN; k++) out[k] = (char)(k + rank);
    fi_addr_t peers[16];
    for (int other = 0; other < size; other++) {
        while (!read_name(dir, other, name)) usleep(2000);
        CHECK(fi_av_insert(av, name, 1, &peers[other], 0, NULL) == 1);
    }
    for (int step = 1; step < size; step++) {
        int to = (rank + step) % size, from = (rank + size - step) % size;
        ssize_t sent;
        CHECK(!fi_trecv(ep, in, LEN, NULL, peers[from], from, 0, NULL));
        while ((sent = fi_tsend(ep, out, LEN, NULL, peers[to], rank, NULL)) == -FI_EAGAIN)
            fi_cq_read(cq, NULL, 0);
        CHECK(!sent && next(20) == 1 && next(20) == 1);
        for (int k = 0; k < LEN; k++) CHECK(in[k] == (char)(k + from));
    }
    printf("rank %d met %d\n", rank, size - 1);
    fflush(stdout);
    snprintf(path, sizeof path, "%s/stop", dir);
    while (access(path, F_OK)) {
        fi_cq_read(cq, NULL, 0);
        usleep(500);
    }
    CHECK(!fi_close(&ep->fid));
}

static void stranger(const char *dir, int forges)
{
    char own[64], name[64];
    open_all(own);
    CHECK(read_name(dir, 0, name));
    if (forges) memcpy(name + 59, own + 59, 4);
    fi_addr_t peer;
    if (fi_av_insert(av, name, 1, &peer, 0, NULL) != 1) {
        puts("not a name of this job");
        return;
    }
    ssize_t sent;
    while ((sent = fi_tsend(ep, own, 8, NULL, peer, 0, NULL)) == -FI_EAGAIN)
        fi_cq_read(cq, NULL, 0);
    CHECK(!sent);
    int got = next(20);
    if (got >= 0) puts(got ? "reached" : "nothing");
}

int main(int count, char **args)
{
    CHECK(count == 3);
    alarm(50);
    if (!strcmp(args[1], "member")) member(args[2]);
    else stranger(args[2], !strcmp(args[1], "forger"));
    return 0;
}
