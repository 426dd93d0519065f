/* Programs of libfabric over the provider petasos: each tests what its name says. */
#include "common.h"

static void messages(int first)
{
    static size_t lens[] = { 0, 1, 8, 100, 4096, 16384, 16385, 100000, 3 << 20 };
    start();
    for (int k = 0; k < 9; k++) {
        size_t len = lens[k];
        if (first) {
            fill(len, k);
            AGAIN(fi_senddata(ep, big[0], len, NULL, 77 + k, peer, &lens));
            struct fi_cq_tagged_entry entry = next(NULL);
            CHECK(entry.op_context == &lens && entry.flags == (FI_SEND | FI_MSG));
            AGAIN(fi_tsend(ep, big[0], len, NULL, peer, 1ull << 63 | k, &lens));
            CHECK(next(NULL).flags == (FI_SEND | FI_TAGGED));
        } else {
            /* The one, and the other when its message has come. */
            memset(big[1], 0, len);
            OK(fi_recv(ep, big[1], sizeof big[1], NULL, FI_ADDR_UNSPEC, &k));
            struct fi_cq_tagged_entry entry = next(NULL);
            CHECK(entry.op_context == &k && entry.len == len && entry.data == 77u + k);
            CHECK(entry.flags == (FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA) && is_filled(len, k));
            memset(big[1], 0, len);
            usleep(2000);
            struct iovec pieces[2] = { { big[1], len / 3 }, { big[1] + len / 3, len - len / 3 } };
            OK(fi_trecvv(ep, pieces, NULL, 2, peer, 1ull << 63 | (k ^ 1), 1, &k));
            entry = next(NULL);
            CHECK(entry.tag == (1ull << 63 | k) && entry.len == len && is_filled(len, k));
        }
    }
    if (!first) CHECK(fi_cntr_read(counter) == 18 && fi_cntr_wait(counter, 18, 0) == 0);
    if (first) {
        /* No completion, and memory that is free at once. */
        strcpy(big[0], "injected");
        AGAIN(fi_tinject(ep, big[0], 9, peer, 5));
        CHECK(fi_tinject(ep, big[0], 5000, peer, 5) == -FI_EINVAL);
        strcpy(big[0], "changed!");
        CHECK(fi_tinject(ep, NULL, 9, peer, 5) == -FI_EINVAL);
        CHECK(fi_tinject(ep, big[0], 9, 12345, 5) == -FI_EINVAL);
        CHECK(fi_cq_read(cq, NULL, 0) == -FI_EAGAIN);
    } else {
        fi_addr_t from = 99;
        struct fi_cq_tagged_entry entry;
        OK(fi_trecv(ep, big[1], 100, NULL, FI_ADDR_UNSPEC, 5, 0, NULL));
        while (fi_cq_readfrom(cq, &entry, 1, &from) != 1) {}
        CHECK(from == peer && !strcmp(big[1], "injected"));
    }
    meet();
    stop();
}

/* Peek, claim and discard; several messages in one buffer. */
static void matching(int first)
{
    start();
    if (first) {
        for (long k = 0; k < 4; k++) AGAIN(fi_tinject(ep, &k, 8, peer, 40 + k));
        fill(50000, 4);
        AGAIN(fi_tsend(ep, big[0], 50000, NULL, peer, 44, NULL));
        meet();
        next(NULL);
        for (long k = 0; k < 40; k++) AGAIN(fi_inject(ep, &k, 8, peer));
        fill(30000, 9);
        AGAIN(fi_send(ep, big[0], 30000, NULL, peer, NULL));
        next(NULL);
    } else {
        struct fi_cq_err_entry error;
        struct fi_msg_tagged message = { .addr = FI_ADDR_UNSPEC, .tag = 39, .context = &message };
        OK(fi_trecvmsg(ep, &message, FI_PEEK));
        next(&error);
        CHECK(error.err == FI_ENOMSG && error.op_context == &message);
        /* The last has come, and so have all. */
        struct fi_cq_tagged_entry entry;
        message.tag = 44;
        for (error.err = FI_ENOMSG; error.err;) {
            memset(&error, 0, sizeof error);
            OK(fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM));
            ssize_t got;
            while ((got = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN) {}
            if (got == -FI_EAVAIL) fi_cq_readerr(cq, &error, 0);
        }
        CHECK(entry.len == 50000 && entry.tag == 44);
        /* A context names one message that is claimed. */
        message.tag = 43;
        CHECK(fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM) == -FI_EBUSY);
        message.tag = 42;
        OK(fi_trecvmsg(ep, &message, FI_PEEK | FI_DISCARD));
        CHECK(next(NULL).tag == 42);
        long got = -1;
        for (long k = 0; k < 3; k++) {
            OK(fi_trecv(ep, &got, 8, NULL, peer, 40, 3, NULL));
            CHECK((long)next(NULL).tag == 40 + (k == 2 ? 3 : k) && got == (k == 2 ? 3 : k));
        }
        struct iovec piece = { big[1], sizeof big[1] };
        message.msg_iov = &piece;
        message.iov_count = 1;
        OK(fi_trecvmsg(ep, &message, FI_CLAIM));
        CHECK(next(NULL).len == 50000 && is_filled(50000, 4));
        CHECK(fi_trecvmsg(ep, &message, FI_CLAIM) == -FI_ENOMSG);
        meet();

        size_t least = 64;
        OK(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
        CHECK(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, 7777, &least, 8) == -FI_ENOPROTOOPT);
        static char several[3][256];
        struct fi_msg multi = { .iov_count = 1, .addr = FI_ADDR_UNSPEC };
        int given = 0, back = 0, came = 0;
        while (came < 40) {
            for (; given - back < 2 && given < 3; given++) {
                struct iovec buffer = { several[given % 3], 256 };
                multi.msg_iov = &buffer;
                multi.context = several[given % 3];
                OK(fi_recvmsg(ep, &multi, FI_MULTI_RECV));
            }
            entry = next(NULL);
            back += !!(entry.flags & FI_MULTI_RECV);
            if (entry.flags & FI_MULTI_RECV && given == 3 && came < 39) {
                struct iovec buffer = { entry.op_context, 256 };
                multi.msg_iov = &buffer;
                multi.context = entry.op_context;
                /* Its messages were read. */
                CHECK(*(long *)entry.buf == came);
                OK(fi_recvmsg(ep, &multi, FI_MULTI_RECV));
                came++;
                continue;
            }
            CHECK(entry.len == 8 && *(long *)entry.buf == came);
            came++;
        }
        /* A long one does not fit into what is left. */
        next(&error);
        CHECK(error.err == FI_ETRUNC && error.len <= 256 && error.olen == 30000 - error.len);
    }
    meet();
    stop();
}

static void access_memory(int first)
{
    start();
    static char memory[1 << 20];
    struct { uint64_t at, key; } mine, theirs;
    struct fid_mr *mr;
    int scalable = !!getenv("SCALABLE");
    CHECK((info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) == (scalable ? 0 : FI_MR_VIRT_ADDR));
    uint64_t all = FI_REMOTE_READ | FI_REMOTE_WRITE;
    OK(fi_mr_reg(domain, memory, sizeof memory, all, 0, 7, 0, &mr, NULL));
    mine.key = fi_mr_key(mr);
    mine.at = scalable ? 0 : (uint64_t)memory;
    CHECK(!scalable || mine.key == 7);
    struct fid_mr *other = NULL;
    CHECK(fi_mr_reg(domain, (void *)8, 100, FI_REMOTE_READ, 0, 9, 0, &other, NULL) == -FI_EFAULT);
    CHECK(fi_mr_reg(domain, memory, (size_t)-1, all, 0, 9, 0, &other, NULL) == -FI_EINVAL);
    if (scalable) CHECK(fi_mr_reg(domain, memory, 8, all, 0, 7, 0, &other, NULL) == -FI_ENOKEY);
    say(&mine, sizeof mine);
    hear(&theirs, sizeof theirs);
    if (first) {
        fill(sizeof memory, 1);
        AGAIN(fi_write(ep, big[0], sizeof memory, NULL, peer, theirs.at, theirs.key, big));
        struct fi_cq_tagged_entry entry = next(NULL);
        CHECK(entry.op_context == big && entry.flags == (FI_RMA | FI_WRITE));
        AGAIN(fi_read(ep, big[1], sizeof memory, NULL, peer, theirs.at, theirs.key, NULL));
        CHECK(next(NULL).flags == (FI_RMA | FI_READ) && is_filled(sizeof memory, 1));
        AGAIN(fi_inject_write(ep, "abc", 4, peer, theirs.at, theirs.key));
        AGAIN(fi_writedata(ep, "de", 3, NULL, 0x1122334455667788, peer, theirs.at + 4, theirs.key,
                           NULL));
        next(NULL);
        uint64_t one = 0, old = 9, with = 0;
        AGAIN(fi_atomic(ep, &one, 1, NULL, peer, theirs.at + 64, theirs.key, FI_UINT64,
                        FI_ATOMIC_WRITE, NULL));
        CHECK(next(NULL).flags == (FI_ATOMIC | FI_WRITE));
        one = 1;
        for (int k = 0; k < 10; k++) {
            AGAIN(fi_fetch_atomic(ep, &one, 1, NULL, &old, NULL, peer, theirs.at + 64, theirs.key,
                                  FI_UINT64, FI_SUM, NULL));
            next(NULL);
            CHECK(old == (uint64_t)k);
        }
        with = 10;
        one = 77;
        AGAIN(fi_compare_atomic(ep, &one, 1, NULL, &with, NULL, &old, NULL, peer, theirs.at + 64,
                                theirs.key, FI_UINT64, FI_CSWAP, NULL));
        next(NULL);
        CHECK(old == 10);
        CHECK(fi_atomic(ep, &one, 1, NULL, peer, theirs.at, theirs.key, FI_LONG_DOUBLE, FI_SUM,
                        NULL) == -FI_EOPNOTSUPP);
        struct fi_atomic_attr attr;
        CHECK(!fi_query_atomic(domain, FI_INT32, FI_MAX, &attr, 0) && attr.size == 4 && attr.count);
        CHECK(fi_query_atomic(domain, FI_INT32, FI_MSWAP, &attr, FI_COMPARE_ATOMIC) ==
              -FI_EOPNOTSUPP);
        /* Beyond its end, before its beginning, and by a number that is none. */
        struct fi_cq_err_entry error;
        uint64_t end = theirs.at + sizeof memory;
        AGAIN(fi_write(ep, big[0], 16, NULL, peer, end - 8, theirs.key, NULL));
        next(&error);
        CHECK(error.err == FI_EFAULT || error.err == EFAULT);
        AGAIN(fi_read(ep, big[1], 16, NULL, peer, theirs.at, theirs.key + 1000, &error));
        next(&error);
        CHECK(error.err == FI_EKEYREJECTED && error.op_context == &error);
        meet();
        /* It is closed there, and other memory has its number. */
        meet();
        AGAIN(fi_read(ep, big[1], 8, NULL, peer, scalable ? 0 : theirs.at, theirs.key, NULL));
        if (scalable) {
            next(NULL);
            CHECK(!strcmp(big[1], "renewed"));
            meet();
            /* The next memory of this number is longer, and may be written. */
            meet();
            AGAIN(fi_write(ep, "longer", 7, NULL, peer, 9000, theirs.key, NULL));
            next(NULL);
            meet();
        } else {
            next(&error);
            CHECK(error.err == FI_EKEYREJECTED);
        }
    } else {
        struct fi_cq_tagged_entry entry = next(NULL);
        CHECK(entry.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
        CHECK(entry.data == 0x1122334455667788);
        meet();
        CHECK(!strcmp(memory, "abc") && !strcmp(memory + 4, "de"));
        CHECK(*(uint64_t *)(memory + 64) == 77);
        OK(fi_close(&mr->fid));
        strcpy(memory, "old");
        static char more[4096] = "renewed";
        OK(fi_mr_reg(domain, more, sizeof more, FI_REMOTE_READ, 0, 7, 0, &mr, NULL));
        CHECK(scalable || fi_mr_key(mr) != mine.key);
        meet();
        if (scalable) {
            meet();
            OK(fi_close(&mr->fid));
            OK(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL));
            meet();
            meet();
            CHECK(!strcmp(memory + 9000, "longer"));
        }
    }
    meet();
    OK(fi_close(&mr->fid));
    stop();
}

/* What has a fence begins when all before it is over: accesses, atomics, and messages, also one
 * that its receiver has not taken. */
static void fence(int first)
{
    start();
    static struct { uint64_t flag, sum; char data[1 << 20]; } memory;
    struct { uint64_t at, key; } mine, theirs;
    struct fid_mr *mr;
    OK(fi_mr_reg(domain, &memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr,
                 NULL));
    mine.key = fi_mr_key(mr);
    mine.at = (uint64_t)&memory;
    say(&mine, sizeof mine);
    hear(&theirs, sizeof theirs);
    uint64_t value = 1, old = 0, number = 0;
    struct iovec piece = { &number, 8 };
    struct fi_rma_iov there = { theirs.at, 8, theirs.key };
    struct fi_msg_rma flag = { .msg_iov = &piece, .iov_count = 1, .addr = peer,
                               .rma_iov = &there, .rma_iov_count = 1 };
    for (int round = 0; round < 20; round++) {
        if (first) {
            fill(1 << 20, round);
            AGAIN(fi_write(ep, big[0], 1 << 20, NULL, peer, theirs.at + 16, theirs.key, NULL));
            struct iovec text = { "there", 6 };
            struct fi_msg message = { .msg_iov = &text, .iov_count = 1, .addr = peer };
            AGAIN(fi_sendmsg(ep, &message, FI_FENCE));
            next(NULL);
            next(NULL);
            for (int k = 0; k < 8; k++)
                AGAIN(fi_atomic(ep, &value, 1, NULL, peer, theirs.at + 8, theirs.key, FI_UINT64,
                                FI_SUM, NULL));
            struct fi_ioc result = { &old, 1 }, none = { NULL, 1 };
            struct fi_rma_ioc at = { theirs.at + 8, 1, theirs.key };
            struct fi_msg_atomic read = { .msg_iov = &none, .iov_count = 1, .addr = peer,
                                          .rma_iov = &at, .rma_iov_count = 1,
                                          .datatype = FI_UINT64, .op = FI_ATOMIC_READ };
            AGAIN(fi_fetch_atomicmsg(ep, &read, &result, NULL, 1, FI_FENCE));
            for (int k = 0; k < 9; k++) next(NULL);
            CHECK(old == 8u * (round + 1));
            /* Behind a message that is not taken; others go on. */
            number = round + 1;
            AGAIN(fi_tsend(ep, big[0], 1 << 20, NULL, peer, round, NULL));
            AGAIN(fi_writemsg(ep, &flag, FI_FENCE));
        } else {
            OK(fi_recv(ep, big[1], 6, NULL, peer, NULL));
            next(NULL);
            memcpy(big[1], memory.data, 1 << 20);
            CHECK(is_filled(1 << 20, round));
            for (int k = 0; k < 300; k++) {
                fi_cq_read(cq, NULL, 0);
                CHECK(*(volatile uint64_t *)&memory.flag == (uint64_t)round);
            }
            OK(fi_trecv(ep, big[1], 1 << 20, NULL, peer, round, 0, NULL));
            next(NULL);
            while (*(volatile uint64_t *)&memory.flag == (uint64_t)round) fi_cq_read(cq, NULL, 0);
        }
        if (first) for (int k = 0; k < 2; k++) next(NULL);
        meet();
    }
    if (first) {
        /* By a number that is none, alone and behind another access. */
        struct fi_cq_err_entry error;
        there.key += 1000;
        AGAIN(fi_writemsg(ep, &flag, FI_FENCE));
        next(&error);
        CHECK(error.err == FI_EKEYREJECTED);
        AGAIN(fi_write(ep, &value, 8, NULL, peer, theirs.at, theirs.key + 1001, NULL));
        ssize_t got = fi_writemsg(ep, &flag, FI_FENCE);
        CHECK(got == -FI_EAGAIN);
        next(&error);
        AGAIN(fi_writemsg(ep, &flag, FI_FENCE));
        next(&error);
        CHECK(error.err == FI_EKEYREJECTED);
    }
    meet();
    OK(fi_close(&mr->fid));
    stop();
}

/* Atomics in the order in which they were begun, where that was asked for: also behind one that has
 * to begin again, as its number has become that of other memory. */
static void ordered(int first)
{
    order = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
    start();
    CHECK((info->tx_attr->msg_order & order) == order && (info->rx_attr->msg_order & order) == order);
    static uint64_t memory[16];
    struct fid_mr *mr[2];
    uint64_t all = FI_REMOTE_READ | FI_REMOTE_WRITE, values[2] = { 1, 2 }, old[50] = { 0 };
    for (int k = 0; k < 2; k++)
        OK(fi_mr_reg(domain, memory, sizeof memory, all, 0, 7 + k, 0, &mr[k], NULL));
    meet();
    if (first) {
        for (int k = 0; k < 50; k++)
            AGAIN(fi_fetch_atomic(ep, values, 1, NULL, &old[k], NULL, peer, 8, 7 + k % 2, FI_UINT64,
                                  FI_SUM, NULL));
        for (int k = 0; k < 50; k++) next(NULL);
        for (int k = 0; k < 50; k++) CHECK(old[k] == (uint64_t)k);
    }
    for (int round = 0; round < 5; round++) {
        meet();
        if (!first) {
            OK(fi_close(&mr[0]->fid));
            OK(fi_mr_reg(domain, memory, sizeof memory, all, 0, 7, 0, &mr[0], NULL));
        }
        meet();
        if (first) {
            for (int k = 0; k < 2; k++)
                AGAIN(fi_atomic(ep, &values[k], 1, NULL, peer, 0, 7 + k, FI_UINT64,
                                FI_ATOMIC_WRITE, NULL));
            for (int k = 0; k < 2; k++) next(NULL);
        }
        meet();
        CHECK(first || *(volatile uint64_t *)memory == 2);
    }
    meet();
    for (int k = 0; k < 2; k++) OK(fi_close(&mr[k]->fid));
    stop();
}

static void ends(int first)
{
    start();
    struct fi_cq_err_entry error;
    if (first) {
        fill(100000, 2);
        AGAIN(fi_tsend(ep, "0123456789", 10, NULL, peer, 1, NULL));
        next(NULL);
        AGAIN(fi_tsend(ep, big[0], 100000, NULL, peer, 2, NULL));
        next(NULL);
        /* One that is never received is taken back. */
        AGAIN(fi_tsend(ep, big[0], 100000, NULL, peer, 3, &error));
        OK(fi_cancel(&ep->fid, &error));
        next(&error);
        CHECK(error.err == FI_ECANCELED && error.op_context == &error);
    } else {
        for (int tag = 1; tag < 3; tag++) {
            memset(big[1], 0, 100);
            OK(fi_trecv(ep, big[1], 4, NULL, peer, tag, 0, &tag));
            next(&error);
            CHECK(error.err == FI_ETRUNC && error.len == 4 && error.op_context == &tag);
            CHECK(error.olen == (tag == 1 ? 6 : 99996) && big[1][4] == 0);
        }
        OK(fi_trecv(ep, big[1], 4, NULL, FI_ADDR_UNSPEC, 99, 0, &error));
        OK(fi_cancel(&ep->fid, NULL));
        OK(fi_cancel(&ep->fid, &error));
        next(&error);
        CHECK(error.err == FI_ECANCELED && error.op_context == &error);
    }
    meet();
    stop();
}

/* The peer dies: what is under way to it ends, and what comes after. */
static void killed(int first)
{
    start();
    if (!first) {
        AGAIN(fi_inject(ep, "here", 5, peer));
        for (;;) fi_cq_read(cq, NULL, 0);
    }
    struct fi_cq_err_entry error;
    OK(fi_recv(ep, big[1], 100, NULL, FI_ADDR_UNSPEC, NULL));
    next(NULL);
    AGAIN(fi_send(ep, big[0], 1 << 20, NULL, peer, &peer));
    OK(fi_trecv(ep, big[1], 100, NULL, peer, 1, 0, &error));
    CHECK(fi_cq_read(cq, NULL, 0) == -FI_EAGAIN);
    CHECK(!kill(child, SIGKILL));
    int found = 0;
    for (int k = 0; k < 2; k++) {
        next(&error);
        CHECK(error.err == FI_ECONNRESET);
        found |= error.op_context == &peer ? 1 : 2;
    }
    CHECK(found == 3);
    for (int k = 0; k < 3; k++) {
        AGAIN(fi_send(ep, big[0], 8, NULL, peer, &found));
        next(&error);
        CHECK(error.op_context == &found && error.err);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    child = 0;
    stop();
}

/* The peer is stopped: it is waited for, others go on (here: the process itself), and later it
 * goes on as well. */
static void stopped(int first)
{
    start();
    if (!first) {
        AGAIN(fi_inject(ep, "here", 5, peer));
        OK(fi_trecv(ep, big[1], sizeof big[1], NULL, peer, 7, 0, NULL));
        CHECK(next(NULL).len == 1 << 20);
        meet();
        stop();
        return;
    }
    fi_addr_t self;
    CHECK(fi_av_insert(av, names[0], 1, &self, 0, NULL) == 1);
    OK(fi_recv(ep, big[1], 100, NULL, peer, NULL));
    next(NULL);
    CHECK(!kill(child, SIGSTOP) && waitpid(child, NULL, WUNTRACED) == child);
    AGAIN(fi_tsend(ep, big[0], 1 << 20, NULL, peer, 7, &peer));
    for (long k = 0; k < 100; k++) {
        long got = -1;
        OK(fi_trecv(ep, &got, 8, NULL, self, k, 0, &got));
        AGAIN(fi_tinject(ep, &k, 8, self, k));
        CHECK(next(NULL).op_context == &got && got == k);
    }
    /* Short ones fill what there is for it, and then are refused for now: no error, no growth. */
    long sent = 0, refused = 0;
    for (; refused < 100 && sent < 1000000; sent++)
        refused += fi_tinject(ep, big[0], 4096, peer, 8) == -FI_EAGAIN;
    CHECK(refused == 100);
    CHECK(!kill(child, SIGCONT));
    CHECK(next(NULL).op_context == &peer);
    meet();
    stop();
}

/* A thread of the provider's makes the passes; waiting is by descriptor. */
static void automatic(int first)
{
    progress = FI_PROGRESS_AUTO;
    start();
    CHECK(info->domain_attr->data_progress == FI_PROGRESS_AUTO);
    if (first) {
        fill(1 << 20, 3);
        AGAIN(fi_send(ep, big[0], 1 << 20, NULL, peer, NULL));
        struct fi_cq_tagged_entry entry;
        CHECK(fi_cq_sread(cq, &entry, 1, NULL, 15000) == 1);
        CHECK(fi_cq_sread(cq, &entry, 1, NULL, 50) == -FI_EAGAIN);
        OK(fi_cq_signal(cq));
        CHECK(fi_cq_sread(cq, &entry, 1, NULL, 15000) == -FI_EAGAIN);
        char c = 1;
        say(&c, 1);
        hear(&c, 1);
    } else {
        OK(fi_recv(ep, big[1], sizeof big[1], NULL, FI_ADDR_UNSPEC, NULL));
        /* Nothing is called until it is there. */
        char c = 1;
        say(&c, 1);
        hear(&c, 1);
        CHECK(is_filled(1 << 20, 3));
        int fd;
        struct fid *fids[1] = { &cq->fid };
        OK(fi_control(&cq->fid, FI_GETWAIT, &fd));
        CHECK(fi_trywait(fabric, fids, 1) == -FI_EAGAIN);
        struct fi_cq_tagged_entry entry;
        CHECK(fi_cq_read(cq, &entry, 1) == 1);
        while (fi_trywait(fabric, fids, 1) == -FI_EAGAIN) {}
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        CHECK(poll(&wait, 1, 10) == 0);
    }
    meet();
    stop();
}

/* Names that are none, and hints for what is not there. */
static void refusals(int first)
{
    start();
    char bad[3][64];
    fi_addr_t numbers[3];
    int errors[3];
    memset(bad, 'x', sizeof bad);
    memcpy(bad[1], names[1], 64);
    CHECK(fi_av_insert(av, bad, 3, numbers, FI_SYNC_ERR, errors) == 1);
    CHECK(numbers[0] == FI_ADDR_NOTAVAIL && numbers[1] == peer);
    CHECK(errors[0] && !errors[1] && errors[2]);
    char text[200];
    size_t len = sizeof text;
    CHECK(fi_av_straddr(av, names[1], text, &len));
    CHECK(strstr(text, "shm://") && strstr(text, "tcp://127.0.0.1:"));
    struct fi_info *hints = fi_dupinfo(info), *found = NULL;
    hints->ep_attr->type = FI_EP_DGRAM;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found) == -FI_ENODATA);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps |= FI_RMA_EVENT;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found) == -FI_ENODATA);
    hints->caps = info->caps;
    static const uint64_t orders[] = { FI_ORDER_RAW, FI_ORDER_WAS, FI_ORDER_RMA_WAW };
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        hints->tx_attr->msg_order = orders[k];
        CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found) == -FI_ENODATA);
    }
    hints->tx_attr->msg_order = 0;
    OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found));
    fi_freeinfo(found);
    fi_freeinfo(hints);
    struct fid_ep *none;
    struct fid_poll *polls;
    struct fi_poll_attr poll_attr = { 0 };
    CHECK(fi_scalable_ep(domain, info, &none, NULL) == -FI_ENOSYS);
    CHECK(fi_poll_open(domain, &poll_attr, &polls) == -FI_ENOSYS);
    struct fi_msg message = { .addr = peer };
    CHECK(fi_sendmsg(ep, &message, FI_TRIGGER) == -FI_EBADFLAGS);
    CHECK(fi_sendmsg(ep, NULL, 0) == -FI_EINVAL);
    struct iovec many[100] = { { 0 } };
    CHECK(fi_sendv(ep, many, NULL, 100, peer, NULL) == -FI_EINVAL);
    /* A name at which there is no process. */
    struct fi_cq_err_entry error;
    memcpy(bad[0], names[1], 64);
    memcpy(bad[0] + 17, "0123456789abcdef", 16);
    CHECK(fi_av_insert(av, bad[0], 1, &numbers[0], 0, NULL) == 1);
    AGAIN(fi_send(ep, bad, 8, NULL, numbers[0], &error));
    next(&error);
    CHECK(error.err == FI_EHOSTUNREACH && error.op_context == &error);
    meet();
    (void)first;
    stop();
}

/* Peers that are found by a host and a port, in the format that FORMAT names. */
static void places(int first)
{
    const char *of = getenv("FORMAT");
    format = !strcmp(of, "text") ? FI_ADDR_STR : !strcmp(of, "internet") ? FI_SOCKADDR_IN : 0;
    node = getenv("NODE");
    char port[16] = "0", name[256], other[256];
    size_t len = sizeof name;
    fi_addr_t from = 99;
    struct fi_cq_tagged_entry entry;
    if (!first) {
        service = port;
        place_flags = FI_SOURCE;
        OK(enable());
        CHECK(info->src_addr && info->src_addrlen && !info->dest_addr);
        OK(fi_getname(&ep->fid, name, &len));
        size_t size = sizeof other;
        CHECK(fi_av_straddr(av, name, other, &size) == other && size == strlen(other) + 1);
        if (format == FI_ADDR_STR) CHECK(len == size && !strcmp(name, other));
        if (format == FI_SOCKADDR_IN) CHECK(len == 16);
        char *end = strchr(other, '#');
        if (end) *end = 0;
        strcpy(port, strrchr(other, ':') + 1);
        say(port, sizeof port);
        say(name, sizeof name);
        /* The first message says whose it is. */
        OK(fi_recv(ep, other, sizeof other, NULL, FI_ADDR_UNSPEC, NULL));
        next(NULL);
        CHECK(fi_av_insert(av, other, 1, &peer, 0, NULL) == 1);
        AGAIN(fi_send(ep, "known", 6, NULL, peer, NULL));
        next(NULL);
        OK(fi_trecv(ep, other, sizeof other, NULL, peer, 3, 0, NULL));
        while (fi_cq_readfrom(cq, &entry, 1, &from) != 1) {}
        CHECK(from == peer && entry.len == 2);
    } else {
        hear(port, sizeof port);
        hear(other, sizeof other);
        service = port;
        OK(enable());
        CHECK(info->src_addr && info->dest_addr && info->dest_addrlen);
        CHECK(fi_av_insert(av, info->dest_addr, 1, &peer, 0, NULL) == 1);
        OK(fi_getname(&ep->fid, name, &len));
        AGAIN(fi_send(ep, name, len, NULL, peer, NULL));
        next(NULL);
        OK(fi_recv(ep, name, sizeof name, NULL, peer, NULL));
        while (fi_cq_readfrom(cq, &entry, 1, &from) != 1) {}
        CHECK(from == peer && !strcmp(name, "known"));
        AGAIN(fi_tsend(ep, "3", 2, NULL, peer, 3, NULL));
        next(NULL);

        /* What is entered is told by events. */
        struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
        struct fid_eq *eq;
        struct fid_av *told;
        OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
        struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
        OK(fi_av_open(domain, &attr, &told, NULL));
        fi_addr_t numbers[3] = { 9, 9, 9 };
        CHECK(fi_av_insert(told, other, 1, numbers, 0, &attr) == -FI_ENOEQ);
        OK(fi_av_bind(told, &eq->fid, 0));
        CHECK(fi_av_insert(told, other, 1, numbers, 0, &attr) == 0 && numbers[0] == 0);
        struct fi_eq_entry event;
        uint32_t number;
        CHECK(fi_eq_sread(eq, &number, &event, sizeof event, 10000, 0) == sizeof event);
        CHECK(number == FI_AV_COMPLETE && event.fid == &told->fid && event.data == 1);
        CHECK(event.context == &attr);
        CHECK(fi_av_insertsym(told, "10.0.0.254", 3, "65535", 1, numbers, 0, NULL) == 0);
        CHECK(fi_eq_read(eq, &number, &event, sizeof event, 0) == sizeof event && event.data == 3);
        len = sizeof name;
        OK(fi_av_lookup(told, numbers[2], name, &len));
        size_t size = sizeof other;
        CHECK(!strcmp(fi_av_straddr(told, name, other, &size), "auto://10.0.1.0:65535"));
        /* The second port is none. */
        CHECK(fi_av_insertsym(told, "10.0.0.1", 1, "65535", 2, numbers, 0, numbers) == 0);
        struct fi_eq_err_entry failed = { 0 };
        CHECK(fi_eq_read(eq, &number, &event, sizeof event, 0) == -FI_EAVAIL);
        CHECK(fi_eq_readerr(eq, &failed, 0) == sizeof failed);
        CHECK(failed.fid == &told->fid && failed.data == 1 && failed.err == FI_EINVAL);
        CHECK(failed.context == numbers && numbers[1] == FI_ADDR_NOTAVAIL && numbers[0] == 4);
        CHECK(fi_eq_read(eq, &number, &event, sizeof event, 0) == sizeof event && event.data == 1);
        CHECK(fi_eq_read(eq, &number, &event, sizeof event, 0) == -FI_EAGAIN);
        CHECK(fi_av_insertsvc(av, "localhost", "1", &numbers[0], 0, NULL) == 1 && numbers[0] == 1);
        OK(fi_close(&told->fid));
        OK(fi_close(&eq->fid));
    }
    meet();
    stop();
}

/* What the provider takes for the library's: it is one from the future if the environment says so. */
uint32_t fi_version(void) { return getenv("FUTURE") ? FI_VERSION(3, 1) : FI_VERSION(1, 17); }

static void future(int first)
{
    (void)first;
    struct fi_info *found;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &found) == -FI_ENODATA);
    unsetenv("FUTURE");
    OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &found));
    fi_freeinfo(found);
}

/* Beyond this machine only with a secret. */
static void secret(int first)
{
    (void)first;
    setenv("FI_PETASOS_HOST", "0.0.0.0", 1);
    CHECK(enable() == -FI_EADDRNOTAVAIL);
    setenv("FI_PETASOS_HOST", "nowhere", 1);
    CHECK(fi_enable(ep) == -FI_EADDRNOTAVAIL);
    unsetenv("FI_PETASOS_HOST");
    /* Hosts and ports are found by one alone. */
    struct fi_info *found;
    int none = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "4040", 0, info, &found);
    CHECK(none == -FI_ENODATA);
    CHECK(fi_av_insertsvc(av, "127.0.0.1", "4040", &peer, 0, NULL) == 0);
    setenv("FI_PETASOS_SECRET_FILE", "/nowhere", 1);
    CHECK(fi_enable(ep) == -FI_EADDRNOTAVAIL);
    unsetenv("FI_PETASOS_SECRET_FILE");
    OK(fi_enable(ep));
    stop();
}

int main(int count, char **args)
{
    static const struct test all[] = {
        { "messages", messages },
        { "matching", matching },
        { "access", access_memory },
        { "fence", fence },
        { "ordered", ordered },
        { "ends", ends },
        { "killed", killed },
        { "stopped", stopped },
        { "automatic", automatic },
        { "refusals", refusals },
        { "places", places },
        { "future", future },
        { "secret", secret },
    };
    return run(all, sizeof all / sizeof *all, count, args);
}
