/* A client, and servers that it starts: PROGRAM WHAT TRANSPORT. A server alone, which writes its
 * name: PROGRAM serve TRANSPORT. A client of that: PROGRAM visit TRANSPORT NAME. */
#include "common.h"

static struct side side;
static const char *transport;

static void open_side(uint8_t listen)
{
    side.class = HG_Init(transport, listen);
    CHECK(side.class != NULL);
    side.context = HG_Context_create(side.class);
    CHECK(side.context != NULL);
    register_calls(&side);
}

struct server {
    pid_t pid;
    char name[512];
    hg_addr_t addr;
};

static void start(struct server *server)
{
    int fds[2];

    CHECK(pipe(fds) == 0);
    server->pid = fork();
    CHECK(server->pid >= 0);
    if (server->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        open_side(1);
        serve_calls(&side, fds[1]);
    }
    close(fds[1]);
    CHECK(read(fds[0], server->name, sizeof(server->name)) == sizeof(server->name));
    close(fds[0]);
}

static void find(struct server *server)
{
    OK(HG_Addr_lookup2(side.class, server->name, &server->addr));
}

static hg_handle_t make(struct server *server, hg_id_t id)
{
    hg_handle_t handle;

    OK(HG_Create(side.context, server->addr, id, &handle));
    return handle;
}

static void end(struct server *server)
{
    hg_handle_t handle = make(server, side.end);
    int status;

    OK(call(&side, handle, NULL));
    OK(HG_Destroy(handle));
    OK(HG_Addr_free(side.class, server->addr));
    CHECK(waitpid(server->pid, &status, 0) == server->pid && status == 0);
}

static void calls(struct server *server)
{
    hg_handle_t handle = make(server, side.null);
    sum_in_t in = {"a name", 40, 2};
    sum_out_t out;
    struct done done = {0, HG_SUCCESS};
    unsigned int count;
    uint8_t flag;
    hg_handle_t unknown;
    int i, data = 5;
    number_t number;

    for (i = 0; i < 100; i++)
        OK(call(&side, handle, NULL));
    OK(HG_Reset(handle, server->addr, side.sum));
    for (i = 0; i < 100; i++) {
        in.a = (uint32_t)i;
        OK(call(&side, handle, &in));
        CHECK(HG_Get_input_payload_size(handle) == 8 + 7 + 2 + 4 + 8);
        OK(HG_Get_output(handle, &out));
        CHECK(out.sum == (uint64_t)i + 2 && strcmp(out.name, "a name") == 0);
        OK(HG_Free_output(handle, &out));
    }
    /* No string is a string, too. */
    in.name = NULL;
    OK(call(&side, handle, &in));
    OK(HG_Get_output(handle, &out));
    CHECK(out.name == NULL);
    OK(HG_Free_output(handle, &out));
    /* One call at a time. */
    OK(HG_Forward(handle, note, &done, &in));
    CHECK(HG_Forward(handle, note, &done, &in) == HG_BUSY);
    CHECK(HG_Reset(handle, server->addr, side.null) == HG_BUSY);
    OK(wait_for(&side, &done));
    CHECK(HG_Trigger(side.context, 0, 1, &count) == HG_TIMEOUT && done.times == 1);
    /* A handle that is destroyed before its call is over. */
    done.times = 0;
    OK(HG_Ref_incr(handle));
    CHECK(HG_Ref_get(handle) == 2);
    OK(HG_Forward(handle, note, &done, &in));
    OK(HG_Destroy(handle));
    OK(HG_Destroy(handle));
    OK(wait_for(&side, &done));
    /* What the server does not know, and what its handler returns. */
    OK(HG_Register(side.class, 77, NULL, NULL, NULL));
    handle = make(server, 77);
    CHECK(call(&side, handle, NULL) == HG_NOENTRY);
    OK(HG_Reset(handle, server->addr, side.fail));
    number.number = HG_PERMISSION;
    CHECK(call(&side, handle, &number) == HG_PERMISSION);
    /* Data that belongs to a call. */
    OK(HG_Register_data(side.class, side.sum, &data, NULL));
    CHECK(HG_Registered_data(side.class, side.sum) == &data);
    OK(HG_Registered(side.class, side.sum, &flag));
    CHECK(flag == 1);
    OK(HG_Registered_name(side.class, "nothing", NULL, &flag));
    CHECK(flag == 0);
    OK(HG_Deregister(side.class, 77));
    CHECK(HG_Reset(handle, server->addr, 77) == HG_NOENTRY);
    CHECK(HG_Create(side.context, server->addr, 77, &unknown) == HG_NOENTRY);
    CHECK(HG_Deregister(side.class, 77) == HG_NOENTRY);
    OK(HG_Destroy(handle));
}

static hg_addr_t found;

static hg_return_t on_found(const struct hg_cb_info *info)
{
    found = info->info.lookup.addr;
    return note(info);
}

static void addresses(struct server *server)
{
    hg_addr_t own, two;
    char name[512], again[512];
    hg_size_t size = 0;
    struct done done = {0, HG_SUCCESS};

    OK(HG_Addr_lookup1(side.context, on_found, &done, server->name, HG_OP_ID_IGNORE));
    OK(wait_for(&side, &done));
    CHECK(HG_Addr_cmp(side.class, found, server->addr) == 1);
    OK(HG_Addr_free(side.class, found));
    OK(HG_Addr_self(side.class, &own));
    CHECK(HG_Core_addr_is_self((hg_core_addr_t)own));
    CHECK(HG_Addr_cmp(side.class, own, server->addr) == 0);
    OK(HG_Addr_dup(side.class, own, &two));
    CHECK(HG_Addr_cmp(side.class, own, two) == 1);
    OK(HG_Addr_to_string(side.class, NULL, &size, own));
    CHECK(size > 4 && size <= sizeof(name));
    size--;
    CHECK(HG_Addr_to_string(side.class, name, &size, own) == HG_OVERFLOW);
    OK(HG_Addr_to_string(side.class, name, &size, own));
    OK(HG_Addr_free(side.class, own));
    size = sizeof(again);
    OK(HG_Addr_to_string(side.class, again, &size, two));
    CHECK(strcmp(name, again) == 0);
    OK(HG_Addr_free(side.class, two));
    CHECK(HG_Addr_lookup2(side.class, "nonsense", &two) != HG_SUCCESS);
}

/* To itself: input and output as to another process. */
static void self_calls(struct server *server)
{
    hg_addr_t own;
    hg_handle_t handle;
    sum_in_t in = {"self", 1, 2};
    sum_out_t out;

    (void)server;
    OK(HG_Addr_self(side.class, &own));
    OK(HG_Create(side.context, own, side.sum, &handle));
    OK(call(&side, handle, &in));
    OK(HG_Get_output(handle, &out));
    CHECK(out.sum == 3);
    OK(HG_Free_output(handle, &out));
    OK(HG_Destroy(handle));
    OK(HG_Addr_free(side.class, own));
}

/* Input and output of all lengths around that of a message, and far beyond. */
static void overflow(struct server *server)
{
    hg_handle_t handle = make(server, side.echo);
    hg_size_t eager = HG_Class_get_input_eager_size(side.class);
    hg_size_t lengths[] = {1, eager - 12, eager - 11, eager - 10, eager - 9, 100000, 5000000};
    struct hg_diag_counters counters;
    size_t i;
    void *extra;

    for (i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t len = (size_t)lengths[i], j;
        text_t in = {(char *)malloc(len)}, out;

        for (j = 0; j + 1 < len; j++)
            in.text[j] = (char)('a' + j % 23);
        in.text[len - 1] = 0;
        OK(call(&side, handle, &in));
        OK(HG_Get_output(handle, &out));
        CHECK(strcmp(in.text, out.text) == 0);
        OK(HG_Get_output_extra_buf(handle, &extra, NULL));
        CHECK((extra != NULL) == (len + 10 > eager));
        CHECK(HG_Get_output_payload_size(handle) == len + 10);
        OK(HG_Free_output(handle, &out));
        free(in.text);
    }
    OK(HG_Class_get_counters(side.class, &counters));
    CHECK(counters.rpc_req_extra_count == 3);
    OK(HG_Destroy(handle));
}

static uint64_t hash_of(const unsigned char *memory, uint64_t len, uint64_t hash)
{
    uint64_t i;

    for (i = 0; i < len; i++)
        hash = hash * 31 + memory[i];
    return hash;
}

static number_t moved(hg_handle_t handle, bulk_in_t *in)
{
    number_t out;

    OK(call(&side, handle, in));
    OK(HG_Get_output(handle, &out));
    OK(HG_Free_output(handle, &out));
    return out;
}

#define PIECES 5

static void bulk(struct server *server)
{
    hg_handle_t handle = make(server, side.pull);
    hg_size_t lengths[] = {10, 4096, 100000, 1 << 20, 5 << 20};
    void *pieces[PIECES], *parts[PIECES + 1];
    hg_size_t sizes[PIECES], part_sizes[PIECES + 1], all, i, at;
    uint32_t count;
    bulk_in_t in;
    int l, p;
    uint64_t expected;

    for (l = 0; l < 5; l++) {
        all = 0;
        expected = 0;
        for (p = 0; p < PIECES; p++) {
            sizes[p] = lengths[l] / PIECES + (hg_size_t)p;
            pieces[p] = malloc(sizes[p]);
            for (i = 0; i < sizes[p]; i++)
                ((unsigned char *)pieces[p])[i] = (unsigned char)(i * 13 + (hg_size_t)p);
            expected = hash_of((unsigned char *)pieces[p], sizes[p], expected);
            all += sizes[p];
        }
        OK(HG_Bulk_create(side.class, PIECES, pieces, sizes, HG_BULK_READWRITE, &in.bulk));
        CHECK(HG_Bulk_get_size(in.bulk) == all && HG_Bulk_get_segment_count(in.bulk) == PIECES);
        OK(HG_Bulk_access(in.bulk, 1, all - 1, HG_BULK_READWRITE, PIECES, parts, part_sizes, &count));
        CHECK(count == PIECES && parts[0] == (char *)pieces[0] + 1 && part_sizes[0] == sizes[0] - 1);
        in.offset = 0;
        in.len = all;
        OK(HG_Reset(handle, server->addr, side.pull));
        CHECK(moved(handle, &in).number == expected);
        /* A part, pushed: all else stays. */
        in.offset = sizes[0] - 1;
        in.len = all - in.offset - 1;
        OK(HG_Reset(handle, server->addr, side.push));
        CHECK(moved(handle, &in).number == 0);
        at = 0;
        for (p = 0; p < PIECES; p++)
            for (i = 0; i < sizes[p]; i++, at++) {
                unsigned char was = (unsigned char)(i * 13 + (hg_size_t)p);
                unsigned char is = (unsigned char)((at - in.offset) * 7);

                if (at < in.offset || at >= in.offset + in.len)
                    is = was;
                CHECK(((unsigned char *)pieces[p])[i] == is);
            }
        OK(HG_Bulk_free(in.bulk));
        /* The memory is this program's again. */
        for (p = 0; p < PIECES; p++)
            free(pieces[p]);
    }
    /* Memory that the library allocates, and that may only be read: the push is refused. */
    sizes[0] = 100000;
    OK(HG_Bulk_create(side.class, 1, NULL, sizes, HG_BULK_READ_ONLY, &in.bulk));
    OK(HG_Bulk_access(in.bulk, 0, 100000, HG_BULK_READ_ONLY, 1, parts, part_sizes, &count));
    memset(parts[0], 3, 100000);
    expected = hash_of((unsigned char *)parts[0], 100000, 0);
    in.offset = 0;
    in.len = 100000;
    OK(HG_Reset(handle, server->addr, side.pull));
    CHECK(moved(handle, &in).number == expected);
    /* Little data travels with its descriptor. */
    OK(HG_Bulk_free(in.bulk));
    sizes[0] = 1000;
    OK(HG_Bulk_create(side.class, 1, NULL, sizes, HG_BULK_READ_ONLY, &in.bulk));
    CHECK(HG_Bulk_get_serialize_size(in.bulk, HG_BULK_EAGER) > 1000);
    CHECK(HG_Bulk_get_serialize_size(in.bulk, 0) < 600);
    in.len = 1000;
    OK(HG_Bulk_access(in.bulk, 0, 1000, HG_BULK_READ_ONLY, 1, parts, part_sizes, &count));
    memset(parts[0], 9, 1000);
    CHECK(moved(handle, &in).number == hash_of((unsigned char *)parts[0], 1000, 0));
    OK(HG_Bulk_free(in.bulk));
    OK(HG_Destroy(handle));
}

/* A descriptor that goes to a third process, which pulls from here. */
static void relay(struct server *server)
{
    struct server third;
    hg_handle_t handle = make(server, side.relay);
    hg_size_t size = 300000;
    unsigned char *memory = (unsigned char *)malloc(size);
    void *piece = memory;
    relay_in_t in;
    number_t out;

    start(&third);
    find(&third);
    memset(memory, 5, size);
    OK(HG_Bulk_create(side.class, 1, &piece, &size, HG_BULK_READ_ONLY, &in.bulk));
    OK(HG_Bulk_bind(in.bulk, side.context));
    in.addr = third.name;
    in.len = size;
    OK(call(&side, handle, &in));
    OK(HG_Get_output(handle, &out));
    OK(HG_Free_output(handle, &out));
    CHECK(out.number == hash_of(memory, size, 0));
    OK(HG_Bulk_free(in.bulk));
    OK(HG_Destroy(handle));
    free(memory);
    end(&third);
}

static void oneway(struct server *server)
{
    hg_handle_t handle = make(server, side.oneway);
    number_t in = {3}, none = {0}, out;
    int i;

    for (i = 0; i < 100; i++)
        OK(call(&side, handle, &in));
    OK(HG_Reset(handle, server->addr, side.fail));
    OK(call(&side, handle, &none));
    OK(HG_Get_output(handle, &out));
    CHECK(out.number == 300);
    OK(HG_Free_output(handle, &out));
    OK(HG_Destroy(handle));
}

#define MANY 20

static void forward_many(struct server *server, hg_handle_t *handles, struct done *dones)
{
    int i;

    memset(dones, 0, MANY * sizeof(*dones));
    for (i = 0; i < MANY; i++) {
        handles[i] = make(server, side.never);
        OK(HG_Forward(handles[i], note, &dones[i], NULL));
    }
}

static void wait_many(hg_handle_t *handles, struct done *dones, hg_return_t expected)
{
    int i;

    for (i = 0; i < MANY; i++)
        CHECK(wait_for(&side, &dones[i]) == expected);
    for (i = 0; i < 20; i++)
        turn(&side, 1);
    for (i = 0; i < MANY; i++) {
        CHECK(dones[i].times == 1);
        OK(HG_Destroy(handles[i]));
    }
}

/* A long call without a response, to a server that is stopped: it is not sent yet. */
static void cancel_oneway(struct server *server)
{
    hg_id_t id = MERCURY_REGISTER(side.class, "longway", text_t, void, NULL);
    hg_handle_t handle;
    struct done done = {0, HG_SUCCESS};
    size_t len = 5000000;
    text_t in = {(char *)malloc(len)};
    int i;

    memset(in.text, 'a', len - 1);
    in.text[len - 1] = 0;
    OK(HG_Registered_disable_response(side.class, id, 1));
    handle = make(server, id);
    OK(HG_Forward(handle, note, &done, &in));
    for (i = 0; i < 20; i++)
        turn(&side, 1);
    CHECK(done.times == 0);
    OK(HG_Cancel(handle));
    OK(HG_Cancel(handle));
    CHECK(wait_for(&side, &done) == HG_CANCELED);
    for (i = 0; i < 20; i++)
        turn(&side, 1);
    CHECK(done.times == 1);
    OK(HG_Destroy(handle));
    free(in.text);
}

/* Each call ends once, also of a server that is stopped. */
static void cancel(struct server *server)
{
    hg_handle_t handles[MANY];
    struct done dones[MANY];
    int i;

    forward_many(server, handles, dones);
    for (i = 0; i < 20; i++)
        turn(&side, 1);
    for (i = 0; i < MANY; i++) {
        CHECK(dones[i].times == 0);
        OK(HG_Cancel(handles[i]));
        OK(HG_Cancel(handles[i]));
    }
    wait_many(handles, dones, HG_CANCELED);
    CHECK(kill(server->pid, SIGSTOP) == 0);
    forward_many(server, handles, dones);
    for (i = 0; i < MANY; i++)
        OK(HG_Cancel(handles[i]));
    wait_many(handles, dones, HG_CANCELED);
    cancel_oneway(server);
    CHECK(kill(server->pid, SIGCONT) == 0);
    /* It goes on as before. */
    calls(server);
}

static void killed(void)
{
    struct server server;
    hg_handle_t handles[MANY];
    struct done dones[MANY];
    double begin;
    int i;

    start(&server);
    open_side(0);
    find(&server);
    forward_many(&server, handles, dones);
    for (i = 0; i < 20; i++)
        turn(&side, 1);
    CHECK(kill(server.pid, SIGKILL) == 0);
    begin = now();
    for (i = 0; i < MANY; i++)
        CHECK(wait_for(&side, &dones[i]) == HG_HOSTUNREACH);
    fprintf(stderr, "%d calls ended %.1f ms after the kill\n", MANY, (now() - begin) * 1e3);
    wait_many(handles, dones, HG_HOSTUNREACH);
    CHECK(waitpid(server.pid, NULL, 0) == server.pid);
    /* Those that come later end as well, and at once if they are cancelled. */
    forward_many(&server, handles, dones);
    wait_many(handles, dones, HG_HOSTUNREACH);
    OK(HG_Addr_set_remove(side.class, server.addr));
    OK(HG_Addr_free(side.class, server.addr));
    OK(HG_Context_destroy(side.context));
    OK(HG_Finalize(side.class));
}

/* A transfer from a client that is stopped ends once, by HG_Bulk_cancel. Where the memory is read
 * without the client it is over before. */
static struct done transfer;
static hg_op_id_t transfer_op;
static hg_bulk_t transfer_local;
static hg_handle_t transfer_handle;
static bulk_in_t transfer_in;

static hg_return_t on_stopped(hg_handle_t handle)
{
    transfer_handle = handle;
    OK(HG_Get_input(handle, &transfer_in));
    return HG_SUCCESS;
}

static void client_that_stops(int fd)
{
    struct server parent;
    struct done done = {0, HG_SUCCESS};
    hg_size_t size = 8 << 20;
    hg_handle_t handle;
    bulk_in_t in = {HG_BULK_NULL, 0, size};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(read(fd, parent.name, sizeof(parent.name)) == sizeof(parent.name));
    open_side(1);
    find(&parent);
    OK(HG_Bulk_create(side.class, 1, NULL, &size, HG_BULK_READ_ONLY, &in.bulk));
    handle = make(&parent, side.pull);
    OK(HG_Forward(handle, note, &done, &in));
    while (1)
        turn(&side, 10);
}

static void stopped(void)
{
    int fds[2], i;
    char name[512] = {0};
    hg_size_t size = sizeof(name);
    hg_addr_t own;
    pid_t pid;
    double begin = now();

    CHECK(pipe(fds) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        client_that_stops(fds[0]);
    open_side(1);
    OK(HG_Register(side.class, side.pull, hg_proc_bulk_in_t, hg_proc_number_t, on_stopped));
    OK(HG_Addr_self(side.class, &own));
    OK(HG_Addr_to_string(side.class, name, &size, own));
    OK(HG_Addr_free(side.class, own));
    CHECK(write(fds[1], name, sizeof(name)) == sizeof(name));
    while (transfer_handle == HG_HANDLE_NULL) {
        turn(&side, 100);
        CHECK(now() - begin < 30);
    }
    CHECK(kill(pid, SIGSTOP) == 0);
    while (waitpid(pid, &i, WUNTRACED) != pid || !WIFSTOPPED(i)) {
    }
    OK(HG_Bulk_create(
        side.class, 1, NULL, &transfer_in.len, HG_BULK_WRITE_ONLY, &transfer_local));
    OK(HG_Bulk_transfer(side.context, note, &transfer, HG_BULK_PULL,
        HG_Get_info(transfer_handle)->addr, transfer_in.bulk, 0, transfer_local, 0,
        transfer_in.len, &transfer_op));
    for (i = 0; i < 20; i++)
        turn(&side, 5);
    OK(HG_Bulk_cancel(transfer_op));
    OK(HG_Bulk_cancel(transfer_op));
    wait_for(&side, &transfer);
    CHECK(transfer.ret == HG_CANCELED || transfer.ret == HG_SUCCESS);
    CHECK(transfer.ret == HG_CANCELED || strncmp(transport, "ofi+tcp", 7) != 0);
    for (i = 0; i < 20; i++)
        turn(&side, 1);
    CHECK(transfer.times == 1);
    /* The memory is this program's: nothing writes there when the client goes on. */
    OK(HG_Bulk_free(transfer_local));
    OK(HG_Free_input(transfer_handle, &transfer_in));
    OK(HG_Destroy(transfer_handle));
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &i, 0) == pid);
    OK(HG_Context_destroy(side.context));
    OK(HG_Finalize(side.class));
}

static void visit(const char *name)
{
    struct server server;
    hg_handle_t handle;

    snprintf(server.name, sizeof(server.name), "%s", name);
    open_side(0);
    find(&server);
    calls(&server);
    overflow(&server);
    handle = make(&server, side.end);
    OK(call(&side, handle, NULL));
    OK(HG_Destroy(handle));
    OK(HG_Addr_free(side.class, server.addr));
    OK(HG_Context_destroy(side.context));
    OK(HG_Finalize(side.class));
}

/* Threads: some forward, some make progress, some call back. */
static struct server *shared_server;
static int left;

static hg_return_t counted(const struct hg_cb_info *info)
{
    sum_out_t out;
    hg_handle_t handle = info->info.forward.handle;

    OK(info->ret);
    OK(HG_Get_output(handle, &out));
    CHECK(out.sum == (uint64_t)(uintptr_t)info->arg + 1);
    OK(HG_Free_output(handle, &out));
    OK(HG_Destroy(handle));
    __atomic_sub_fetch(&left, 1, __ATOMIC_RELEASE);
    return HG_SUCCESS;
}

#define EACH 300

static void *forwards(void *arg)
{
    uint32_t i, first = (uint32_t)(uintptr_t)arg * EACH;

    for (i = first; i < first + EACH; i++) {
        sum_in_t in = {"thread", i, 1};
        hg_handle_t handle = make(shared_server, side.sum);

        OK(HG_Forward(handle, counted, (void *)(uintptr_t)i, &in));
    }
    return NULL;
}

static void *progresses(void *arg)
{
    while (__atomic_load_n(&left, __ATOMIC_ACQUIRE) > 0) {
        hg_return_t ret = HG_Progress(side.context, 10);

        CHECK(ret == HG_SUCCESS || ret == HG_TIMEOUT);
    }
    return arg;
}

static void *triggers(void *arg)
{
    unsigned int count;

    while (__atomic_load_n(&left, __ATOMIC_ACQUIRE) > 0)
        HG_Trigger(side.context, 10, 4, &count);
    return arg;
}

static void threads(struct server *server)
{
    pthread_t all[8];
    void *(*work[])(void *) = {
        forwards, forwards, forwards, forwards, progresses, progresses, triggers, triggers};
    int i;

    shared_server = server;
    left = 4 * EACH;
    for (i = 0; i < 8; i++)
        CHECK(pthread_create(&all[i], NULL, work[i], (void *)(uintptr_t)i) == 0);
    for (i = 0; i < 8; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(left == 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct server *);
    } all[] = {{"calls", calls}, {"addresses", addresses}, {"self", self_calls},
        {"overflow", overflow}, {"bulk", bulk}, {"relay", relay}, {"oneway", oneway},
        {"cancel", cancel}, {"threads", threads}};
    struct server server;
    size_t i;
    int ran = 0;

    CHECK(argc >= 3);
    transport = argv[2];
    alarm(100);
    if (strcmp(argv[1], "serve") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_side(1);
        serve_calls(&side, 1);
    }
    if (strcmp(argv[1], "visit") == 0) {
        CHECK(argc == 4);
        visit(argv[3]);
        puts("ok");
        return 0;
    }
    if (strcmp(argv[1], "killed") == 0) {
        killed();
        puts("ok");
        return 0;
    }
    if (strcmp(argv[1], "stopped") == 0) {
        stopped();
        puts("ok");
        return 0;
    }
    start(&server);
    open_side(1);
    find(&server);
    for (i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strcmp(argv[1], "all") == 0 || strcmp(argv[1], all[i].name) == 0) {
            all[i].run(&server);
            ran++;
        }
    CHECK(ran > 0);
    end(&server);
    OK(HG_Context_destroy(side.context));
    OK(HG_Finalize(side.class));
    puts("ok");
    return 0;
}
