/* One process: the core layer, descriptors to sleep on, contexts, settings, refusals, and
 * mercury_util. */
#include "common.h"

#include <mercury_event.h>
#include <mercury_log.h>
#include <mercury_mem.h>
#include <mercury_poll.h>
#include <mercury_request.h>
#include <mercury_thread.h>
#include <mercury_thread_pool.h>
#include <mercury_time.h>
#include <mercury_util.h>
#include <poll.h>

HG_LOG_DECL_REGISTER(test);

static hg_class_t *class;
static hg_context_t *context;
static int created, freed, served[3], sums;

static hg_return_t on_core(hg_core_handle_t handle)
{
    void *in, *out;
    hg_size_t size;

    CHECK(HG_Core_get_input_payload_size(handle) == 5);
    OK(HG_Core_get_input(handle, &in, &size));
    OK(HG_Core_get_output(handle, &out, &size));
    memcpy(out, in, 5);
    OK(HG_Core_respond(handle, NULL, NULL, 0, 5));
    return HG_Core_destroy(handle);
}

static hg_return_t core_note(const struct hg_core_cb_info *info)
{
    struct done *done = (struct done *)info->arg;

    CHECK(info->type == HG_CB_FORWARD);
    done->ret = info->ret;
    done->times++;
    return HG_SUCCESS;
}

/* Sleeps on the descriptor of the context until the operation is over. */
static hg_return_t sleep_for(struct done *done)
{
    double begin = now();
    unsigned int count;

    while (done->times == 0) {
        if (!HG_Event_ready(context)) {
            struct pollfd fd = {HG_Event_get_wait_fd(context), POLLIN, 0};

            CHECK(poll(&fd, 1, 10000) >= 0);
        }
        OK(HG_Event_progress(context, &count));
        OK(HG_Event_trigger(context, count, NULL));
        CHECK(now() - begin < 30);
    }
    CHECK(done->times == 1);
    return done->ret;
}

static void core_layer(void)
{
    hg_core_class_t *core = class->core_class;
    hg_core_addr_t own;
    hg_core_handle_t handle;
    struct done done = {0, HG_SUCCESS};
    void *buf;
    hg_size_t size;
    char text[256];

    OK(HG_Core_register(core, 1234, on_core));
    OK(HG_Core_register_data(core, 1234, &done, NULL));
    CHECK(HG_Core_registered_data(core, 1234) == &done);
    OK(HG_Core_addr_self(core, &own));
    CHECK(HG_Core_addr_get_serialize_size(own, 0) <= sizeof(text));
    OK(HG_Core_addr_serialize(text, sizeof(text), 0, own));
    OK(HG_Core_addr_free(own));
    OK(HG_Core_addr_deserialize(core, &own, text, sizeof(text), 0));
    OK(HG_Core_create(context->core_context, own, 1234, &handle));
    CHECK(HG_Core_get_rpc_data(handle) == &done);
    OK(HG_Core_get_input(handle, &buf, &size));
    CHECK(size == HG_Core_class_get_input_eager_size(core));
    memcpy(buf, "hello", 5);
    OK(HG_Core_forward(handle, core_note, &done, 0, 5));
    OK(sleep_for(&done));
    CHECK(HG_Core_get_output_payload_size(handle) == 5);
    OK(HG_Core_get_output(handle, &buf, &size));
    CHECK(memcmp(buf, "hello", 5) == 0);
    CHECK(HG_Core_forward(handle, core_note, &done, 0, size + 1) == HG_OVERFLOW);
    OK(HG_Core_destroy(handle));
    OK(HG_Core_addr_free(own));
    OK(HG_Core_deregister(core, 1234));
}

static hg_return_t answer_null(hg_handle_t handle)
{
    OK(HG_Respond(handle, NULL, NULL, NULL));
    return HG_Destroy(handle);
}

static void *sleeps(void *arg)
{
    struct side *side = (struct side *)arg;

    /* In one sleep, without the help of a time that is over. */
    OK(HG_Progress(side->context, 60000));
    turn(side, 0);
    return NULL;
}

/* A thread sleeps, another one makes a pass; then a request comes, and the first one serves it. */
static void sleepers(void)
{
    struct side server = {.class = HG_Init("na+sm", 1)}, client = {.class = class, .context = context};
    struct pollfd fd;
    char name[256];
    hg_size_t size = sizeof(name);
    hg_addr_t addr;
    hg_handle_t handle;
    pthread_t thread;
    struct done done = {0, HG_SUCCESS};
    hg_id_t id = MERCURY_REGISTER(class, "null", void, void, NULL);
    unsigned int count;

    server.context = HG_Context_create(server.class);
    CHECK(MERCURY_REGISTER(server.class, "null", void, void, answer_null) == id);
    OK(HG_Addr_self(server.class, &addr));
    OK(HG_Addr_to_string(server.class, name, &size, addr));
    OK(HG_Addr_free(server.class, addr));
    OK(HG_Addr_lookup2(class, name, &addr));
    OK(HG_Create(context, addr, id, &handle));
    CHECK(pthread_create(&thread, NULL, sleeps, &server) == 0);
    usleep(100000);
    CHECK(HG_Progress(server.context, 0) == HG_TIMEOUT);
    OK(HG_Forward(handle, note, &done, NULL));
    OK(wait_for(&client, &done));
    CHECK(pthread_join(thread, NULL) == 0);
    /* The same for a descriptor. */
    while (HG_Event_ready(server.context))
        OK(HG_Event_progress(server.context, &count));
    fd.fd = HG_Event_get_wait_fd(server.context);
    fd.events = POLLIN;
    HG_Progress(server.context, 0);
    CHECK(poll(&fd, 1, 0) == 1);
    /* One's own progress leaves nothing there. */
    OK(HG_Event_progress(server.context, &count));
    while (HG_Event_ready(server.context))
        OK(HG_Event_progress(server.context, &count));
    CHECK(poll(&fd, 1, 0) == 0);
    OK(HG_Destroy(handle));
    OK(HG_Addr_free(class, addr));
    OK(HG_Context_destroy(server.context));
    OK(HG_Finalize(server.class));
}

static void count_free(void *data)
{
    CHECK(data == &created);
    freed++;
}

static hg_return_t on_create(hg_handle_t handle, void *arg)
{
    CHECK(arg == &created);
    created++;
    return HG_Set_data(handle, &created, count_free);
}

static hg_return_t on_context(hg_handle_t handle)
{
    hg_context_t *its = HG_Get_info(handle)->context;
    uint32_t before = HG_Core_context_get_completion_count(its->core_context);

    CHECK(HG_Get_data(handle) == &created);
    served[HG_Context_get_id(its)]++;
    OK(HG_Respond(handle, NULL, NULL, NULL));
    /* There is no callback. */
    CHECK(HG_Core_context_get_completion_count(its->core_context) == before);
    return HG_Destroy(handle);
}

/* A request goes to the context that it names. */
static void contexts(void)
{
    hg_context_t *other = HG_Context_create_id(class, 2);
    hg_id_t id = MERCURY_REGISTER(class, "context", void, void, on_context);
    hg_addr_t own;
    hg_handle_t handle;
    struct done done = {0, HG_SUCCESS};
    unsigned int count;
    int i;

    CHECK(other != NULL && HG_Context_create_id(class, 2) == NULL);
    OK(HG_Class_set_handle_create_callback(class, on_create, &created));
    OK(HG_Addr_self(class, &own));
    OK(HG_Create(context, own, id, &handle));
    for (i = 0; i < 3; i++) {
        done.times = 0;
        OK(HG_Set_target_id(handle, (uint8_t)i));
        OK(HG_Forward(handle, note, &done, NULL));
        while (done.times == 0) {
            HG_Progress(context, 1);
            HG_Trigger(context, 0, 8, &count);
            HG_Trigger(other, 0, 8, &count);
        }
        CHECK(done.ret == (i == 1 ? HG_NOENTRY : HG_SUCCESS));
    }
    CHECK(served[0] == 1 && served[1] == 0 && served[2] == 1);
    /* What waits for its callback stays. */
    done.times = 0;
    OK(HG_Set_target_id(handle, 0));
    OK(HG_Forward(handle, note, &done, NULL));
    while (HG_Core_context_get_completion_count(context->core_context) == 0)
        HG_Progress(context, 1);
    CHECK(HG_Context_destroy(context) == HG_BUSY);
    CHECK(HG_Finalize(class) == HG_BUSY);
    while (done.times == 0) {
        HG_Progress(context, 1);
        HG_Trigger(context, 0, 8, &count);
    }
    CHECK(served[0] == 2 && done.ret == HG_SUCCESS);
    OK(HG_Destroy(handle));
    OK(HG_Class_set_handle_create_callback(class, NULL, NULL));
    CHECK(created == 2 && freed == 1);
    OK(HG_Addr_free(class, own));
    OK(HG_Context_destroy(other));
}

static hg_return_t on_sum(hg_handle_t handle)
{
    sum_in_t in;

    OK(HG_Get_input(handle, &in));
    CHECK(in.a == 7 && strcmp(in.name, "summed") == 0);
    sums++;
    OK(HG_Respond(handle, NULL, NULL, NULL));
    OK(HG_Free_input(handle, &in));
    return HG_Destroy(handle);
}

/* Settings: checksums, messages of another length, no overflow; and a class of NA. */
static void settings(void)
{
    struct hg_init_info info = HG_INIT_INFO_INITIALIZER;
    hg_class_t *sound;
    hg_context_t *its;
    hg_addr_t own;
    hg_handle_t handle;
    struct side side;
    hg_id_t id;
    char name[2000];
    sum_in_t in = {"summed", 7, 1};
    hg_bulk_t bulk;
    hg_size_t size = 100;
    na_class_t *na;

    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    info.na_init_info.max_unexpected_size = 1024;
    info.checksum_level = HG_CHECKSUM_RPC_PAYLOAD;
    info.no_overflow = true;
    CHECK(HG_Init_opt2("na+sm", 1, HG_VERSION(2, 5), &info) == NULL);
    CHECK(HG_Init("smoke+signals", 1) == NULL && HG_Init(NULL, 1) == NULL);
    info.na_init_info.request_mem_device = true;
    CHECK(HG_Init_opt2("na+sm", 1, HG_VERSION(2, 4), &info) == NULL);
    info.na_init_info.request_mem_device = false;
    sound = HG_Init_opt2("na+sm", 1, HG_VERSION(2, 4), &info);
    CHECK(sound != NULL && HG_Class_get_input_eager_size(sound) == 1024 - 28);
    its = HG_Context_create(sound);
    id = MERCURY_REGISTER(sound, "sum", sum_in_t, void, on_sum);
    /* Data of both layers: the call stays what it is. */
    OK(HG_Register_data(sound, id, name, NULL));
    OK(HG_Core_register_data(sound->core_class, id, &info, NULL));
    CHECK(HG_Registered_data(sound, id) == name);
    CHECK(HG_Core_registered_data(sound->core_class, id) == &info);
    OK(HG_Addr_self(sound, &own));
    OK(HG_Create(its, own, id, &handle));
    side.class = sound;
    side.context = its;
    OK(call(&side, handle, &in));
    CHECK(sums == 1);
    in.name = name;
    CHECK(HG_Forward(handle, NULL, NULL, &in) == HG_OVERFLOW);
    OK(HG_Destroy(handle));
    OK(HG_Addr_free(sound, own));
    OK(HG_Context_destroy(its));
    /* A descriptor of a peer's keeps no class open. */
    OK(HG_Bulk_create(sound, 1, NULL, &size, HG_BULK_READ_ONLY, &bulk));
    OK(HG_Bulk_serialize(name, sizeof(name), 0, bulk));
    OK(HG_Bulk_free(bulk));
    OK(HG_Bulk_deserialize(sound, &bulk, name, sizeof(name)));
    OK(HG_Finalize(sound));
    OK(HG_Bulk_free(bulk));

    na = NA_Initialize("na+sm", true);
    CHECK(na != NULL && strcmp(NA_Get_class_protocol(na), "sm") == 0 && NA_Is_listening(na));
    memset(&info.na_init_info, 0, sizeof(info.na_init_info));
    info.na_class = na;
    sound = HG_Init_opt2(NULL, 1, HG_VERSION(2, 4), &info);
    CHECK(sound != NULL && strcmp(HG_Class_get_name(sound), "na") == 0);
    OK(HG_Finalize(sound));
    CHECK(NA_Finalize(na) == NA_SUCCESS);
}

/* What is decoded ends where it ends. */
static void procs(void)
{
    char buf[64];
    uint64_t eight = 8;
    uint32_t four = 0;
    hg_proc_t proc;
    hg_string_t string = NULL;
    hg_bulk_t bulk = HG_BULK_NULL;

    OK(hg_proc_create_set(class, buf, 4, HG_DECODE, HG_NOHASH, &proc));
    memset(buf, 1, sizeof(buf));
    CHECK(hg_proc_uint64_t(proc, &eight) == HG_OVERFLOW && eight == 8);
    OK(hg_proc_uint32_t(proc, &four));
    CHECK(four == 0x01010101 && hg_proc_get_size_left(proc) == 0);
    /* A length of 2^56, and one without a zero at its end. */
    OK(hg_proc_reset(proc, buf, sizeof(buf), HG_DECODE));
    CHECK(hg_proc_hg_string_t(proc, &string) != HG_SUCCESS && string == NULL);
    eight = 10;
    memcpy(buf, &eight, 8);
    OK(hg_proc_reset(proc, buf, sizeof(buf), HG_DECODE));
    CHECK(hg_proc_hg_string_t(proc, &string) == HG_PROTOCOL_ERROR && string == NULL);
    OK(hg_proc_reset(proc, buf, sizeof(buf), HG_DECODE));
    CHECK(hg_proc_hg_bulk_t(proc, &bulk) == HG_PROTOCOL_ERROR && bulk == HG_BULK_NULL);
    CHECK(HG_Bulk_deserialize(class, &bulk, buf, sizeof(buf)) == HG_PROTOCOL_ERROR);
    OK(hg_proc_free(proc));
}

static hg_atomic_int32_t worked;

static void *work(void *arg)
{
    hg_atomic_incr32(&worked);
    return arg;
}

static int no_progress(unsigned int timeout, void *arg)
{
    (void)timeout;
    hg_request_complete(*(hg_request_t **)arg);
    return HG_UTIL_SUCCESS;
}

static int no_trigger(unsigned int timeout, unsigned int *flag, void *arg)
{
    (void)timeout;
    (void)arg;
    *flag = 0;
    return HG_UTIL_SUCCESS;
}

static void util(void)
{
    hg_thread_pool_t *pool;
    struct hg_thread_work works[50];
    hg_thread_t thread;
    hg_thread_mutex_t mutex;
    hg_thread_cond_t cond;
    hg_request_class_t *requests;
    hg_request_t *request;
    hg_poll_set_t *set = hg_poll_create();
    struct hg_poll_event event = {HG_POLLIN, {.u64 = 77}}, found[2];
    unsigned int count;
    int i, fd = hg_event_create();
    bool signaled;
    void *memory = hg_mem_aligned_alloc(4096, 100);
    hg_time_t begin, end;

    CHECK(hg_thread_pool_init(3, &pool) == HG_UTIL_SUCCESS);
    for (i = 0; i < 50; i++) {
        works[i].func = work;
        works[i].args = NULL;
        CHECK(hg_thread_pool_post(pool, &works[i]) == HG_UTIL_SUCCESS);
    }
    CHECK(hg_thread_pool_destroy(pool) == HG_UTIL_SUCCESS && hg_atomic_get32(&worked) == 50);
    CHECK(hg_thread_create(&thread, work, NULL) == 0 && hg_thread_join(thread) == 0);
    CHECK(hg_atomic_get32(&worked) == 51 && hg_atomic_cas32(&worked, 51, 0));
    CHECK(hg_thread_mutex_init(&mutex) == 0 && hg_thread_cond_init(&cond) == 0);
    hg_time_get_current(&begin);
    hg_thread_mutex_lock(&mutex);
    CHECK(hg_thread_cond_timedwait(&cond, &mutex, 5) == HG_UTIL_FAIL);
    hg_thread_mutex_unlock(&mutex);
    hg_time_get_current(&end);
    CHECK(hg_time_less(begin, end) && hg_time_diff(end, begin) >= 0.005);
    CHECK(hg_thread_cond_destroy(&cond) == 0 && hg_thread_mutex_destroy(&mutex) == 0);
    requests = hg_request_init(no_progress, no_trigger, &request);
    request = hg_request_create(requests);
    CHECK(hg_request_wait(request, 1000, &count) == HG_UTIL_SUCCESS && count == 1);
    hg_request_destroy(request);
    hg_request_finalize(requests, NULL);
    CHECK(hg_poll_add(set, fd, &event) == 0);
    CHECK(hg_poll_wait(set, 0, 2, found, &count) == 0 && count == 0);
    CHECK(hg_event_set(fd) == 0 && hg_poll_wait(set, 1000, 2, found, &count) == 0);
    CHECK(count == 1 && found[0].events == HG_POLLIN && found[0].data.u64 == 77);
    CHECK(hg_event_get(fd, &signaled) == 0 && signaled);
    CHECK(hg_event_get(fd, &signaled) == 0 && !signaled);
    CHECK(hg_poll_remove(set, fd) == 0 && hg_poll_destroy(set) == 0 && hg_event_destroy(fd) == 0);
    CHECK(memory != NULL && (uintptr_t)memory % 4096 == 0);
    hg_mem_aligned_free(memory);
    HG_LOG_WRITE(test, HG_LOG_LEVEL_ERROR, "said with %s", "a format");
}

static char said[4096];

static int say(FILE *stream, const char *format, ...)
{
    va_list arguments;

    (void)stream;
    va_start(arguments, format);
    vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    return 0;
}

static void logs(void)
{
    hg_addr_t addr;

    HG_Set_log_func(say);
    HG_Set_log_level("error");
    CHECK(HG_Addr_lookup2(class, "nonsense", &addr) == HG_INVALID_ARG);
    CHECK(strstr(said, "mercury->addr: [error] `nonsense`") != NULL);
    said[0] = 0;
    HG_Set_log_subsys("~addr");
    CHECK(HG_Addr_lookup2(class, "nonsense", &addr) == HG_INVALID_ARG && said[0] == 0);
    HG_Set_log_level("none");
    HG_Set_log_func(NULL);
}

int main(void)
{
    unsigned int major, minor, patch, count;
    hg_bulk_t bulk, other;
    hg_addr_t addr;
    struct done done = {0, HG_SUCCESS};
    hg_size_t size = 8;
    hg_bulk_t refused;
    struct hg_bulk_attr attr = {HG_MEM_TYPE_CUDA, 0};

    alarm(100);
    OK(HG_Version_get(&major, &minor, &patch));
    CHECK(major == HG_VERSION_MAJOR && minor == HG_VERSION_MINOR && patch == HG_VERSION_PATCH);
    CHECK(strcmp(HG_Error_to_string(HG_CANCELED), "HG_CANCELED") == 0);
    class = HG_Init("na+sm", 1);
    context = HG_Context_create(class);
    CHECK(class != NULL && context != NULL);
    contexts();
    core_layer();
    sleepers();
    settings();
    procs();
    util();
    logs();
    CHECK(HG_Bulk_create_attr(
              class, 1, NULL, &size, HG_BULK_READ_ONLY, &attr, &refused) == HG_OPNOTSUPPORTED);
    OK(HG_Bulk_create(class, 1, NULL, &size, HG_BULK_READ_ONLY, &bulk));
    /* A transfer that is over, and not called back. */
    OK(HG_Bulk_create(class, 1, NULL, &size, HG_BULK_READWRITE, &other));
    OK(HG_Addr_self(class, &addr));
    OK(HG_Bulk_transfer(context, note, &done, HG_BULK_PULL, addr, bulk, 0, other, 0, size,
        HG_OP_ID_IGNORE));
    CHECK(HG_Context_destroy(context) == HG_BUSY && done.times == 0);
    CHECK(HG_Trigger(context, 0, 1, &count) == HG_SUCCESS && done.times == 1);
    OK(HG_Addr_free(class, addr));
    OK(HG_Bulk_free(other));
    OK(HG_Context_destroy(context));
    CHECK(HG_Finalize(class) == HG_BUSY);
    OK(HG_Bulk_free(bulk));
    OK(HG_Finalize(class));
    CHECK(freed == created);
    puts("ok");
    return 0;
}
