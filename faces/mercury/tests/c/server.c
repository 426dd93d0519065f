/* The server of the tests: handlers of all kinds. */
#include "common.h"

static struct side *own;
static int ended;
static uint64_t oneways;

static hg_return_t on_null(hg_handle_t handle)
{
    OK(HG_Respond(handle, NULL, NULL, NULL));
    return HG_Destroy(handle);
}

static hg_return_t on_sum(hg_handle_t handle)
{
    sum_in_t in;
    sum_out_t out;
    const struct hg_info *info = HG_Get_info(handle);
    hg_return_t ret;

    CHECK(info->context == own->context && info->hg_class == own->class && info->id == own->sum);
    CHECK(info->addr != HG_ADDR_NULL);
    ret = HG_Get_input(handle, &in);
    if (ret != HG_SUCCESS) {
        OK(HG_Destroy(handle));
        return ret;
    }
    out.name = in.name;
    out.sum = in.a + in.b;
    OK(HG_Respond(handle, NULL, NULL, &out));
    OK(HG_Free_input(handle, &in));
    return HG_Destroy(handle);
}

static hg_return_t on_echo(hg_handle_t handle)
{
    text_t in;
    hg_return_t ret = HG_Get_input(handle, &in);

    if (ret != HG_SUCCESS) {
        OK(HG_Destroy(handle));
        return ret;
    }
    OK(HG_Respond(handle, NULL, NULL, &in));
    OK(HG_Free_input(handle, &in));
    return HG_Destroy(handle);
}

/* A transfer that a handler has begun. */
struct moving {
    hg_handle_t handle;
    bulk_in_t in;
    hg_bulk_t local;
    unsigned char *memory;
    int is_pull;
    uint64_t hash;
};

static hg_return_t moved(const struct hg_cb_info *info)
{
    struct moving *moving = (struct moving *)info->arg;
    number_t out = {moving->hash};

    CHECK(info->type == HG_CB_BULK && info->info.bulk.local_handle == moving->local);
    if (info->ret != HG_SUCCESS)
        out.number = UINT64_MAX;
    if (!moving->is_pull)
        OK(HG_Bulk_free(moving->local));
    OK(HG_Respond(moving->handle, NULL, NULL, &out));
    OK(HG_Free_input(moving->handle, &moving->in));
    OK(HG_Destroy(moving->handle));
    free(moving->memory);
    free(moving);
    return HG_SUCCESS;
}

/* Frees the descriptor while the transfer is under way: then all is there, and the memory is this
 * program's. */
static hg_return_t free_early(struct moving *moving)
{
    uint64_t i;

    OK(HG_Bulk_free(moving->local));
    for (i = 0; i < moving->in.len; i++) {
        moving->hash = moving->hash * 31 + moving->memory[i];
        moving->memory[i] = 0;
    }
    return HG_SUCCESS;
}

static hg_return_t move(hg_handle_t handle, int is_pull)
{
    struct moving *moving = (struct moving *)calloc(1, sizeof(*moving));
    const struct hg_info *info = HG_Get_info(handle);
    hg_op_id_t op;
    void *memory;
    uint64_t i;

    OK(HG_Get_input(handle, &moving->in));
    moving->handle = handle;
    moving->is_pull = is_pull;
    memory = moving->memory = (unsigned char *)malloc(moving->in.len);
    for (i = 0; i < moving->in.len; i++)
        moving->memory[i] = (unsigned char)(i * 7);
    OK(HG_Bulk_create(own->class, 1, &memory, &moving->in.len,
        is_pull ? HG_BULK_WRITE_ONLY : HG_BULK_READ_ONLY, &moving->local));
    OK(HG_Bulk_transfer(info->context, moved, moving, is_pull ? HG_BULK_PULL : HG_BULK_PUSH,
        info->addr, moving->in.bulk, moving->in.offset, moving->local, 0, moving->in.len, &op));
    return is_pull ? free_early(moving) : HG_SUCCESS;
}

static hg_return_t on_pull(hg_handle_t handle)
{
    return move(handle, 1);
}

static hg_return_t on_push(hg_handle_t handle)
{
    return move(handle, 0);
}

/* A call that is passed on to a third process, with its descriptor. */
struct relay {
    hg_handle_t from, to;
    relay_in_t in;
    hg_addr_t addr;
};

static hg_return_t relayed(const struct hg_cb_info *info)
{
    struct relay *relay = (struct relay *)info->arg;
    number_t out = {UINT64_MAX};

    if (info->ret == HG_SUCCESS) {
        OK(HG_Get_output(relay->to, &out));
        OK(HG_Free_output(relay->to, &out));
    }
    OK(HG_Respond(relay->from, NULL, NULL, &out));
    OK(HG_Free_input(relay->from, &relay->in));
    OK(HG_Destroy(relay->from));
    OK(HG_Destroy(relay->to));
    OK(HG_Addr_free(own->class, relay->addr));
    free(relay);
    return HG_SUCCESS;
}

static hg_return_t on_relay(hg_handle_t handle)
{
    struct relay *relay = (struct relay *)calloc(1, sizeof(*relay));
    bulk_in_t in;

    relay->from = handle;
    OK(HG_Get_input(handle, &relay->in));
    CHECK(HG_Bulk_get_addr(relay->in.bulk) != HG_ADDR_NULL);
    OK(HG_Addr_lookup2(own->class, relay->in.addr, &relay->addr));
    OK(HG_Create(own->context, relay->addr, own->count, &relay->to));
    in.bulk = relay->in.bulk;
    in.offset = 0;
    in.len = relay->in.len;
    return HG_Forward(relay->to, relayed, relay, &in);
}

/* Pulls by the address that is bound into the descriptor. */
static hg_return_t on_count(hg_handle_t handle)
{
    struct moving *moving = (struct moving *)calloc(1, sizeof(*moving));
    void *memory;
    hg_return_t ret;

    OK(HG_Get_input(handle, &moving->in));
    moving->handle = handle;
    moving->is_pull = 1;
    memory = moving->memory = (unsigned char *)malloc(moving->in.len);
    OK(HG_Bulk_create(
        own->class, 1, &memory, &moving->in.len, HG_BULK_WRITE_ONLY, &moving->local));
    ret = HG_Bulk_transfer(own->context, moved, moving, HG_BULK_PULL, HG_Get_info(handle)->addr,
        moving->in.bulk, 0, moving->local, 0, moving->in.len, HG_OP_ID_IGNORE);
    CHECK(ret == HG_INVALID_ARG);
    OK(HG_Bulk_bind_transfer(own->context, moved, moving, HG_BULK_PULL, moving->in.bulk, 0,
        moving->local, 0, moving->in.len, HG_OP_ID_IGNORE));
    return free_early(moving);
}

static hg_return_t on_oneway(hg_handle_t handle)
{
    number_t in;

    OK(HG_Get_input(handle, &in));
    oneways += in.number;
    OK(HG_Free_input(handle, &in));
    CHECK(HG_Respond(handle, NULL, NULL, NULL) != HG_SUCCESS);
    return HG_Destroy(handle);
}

/* How much has come by those. */
static hg_return_t on_fail(hg_handle_t handle)
{
    number_t in;

    OK(HG_Get_input(handle, &in));
    OK(HG_Free_input(handle, &in));
    if (in.number == 0) {
        number_t out = {oneways};

        OK(HG_Respond(handle, NULL, NULL, &out));
        return HG_Destroy(handle);
    }
    OK(HG_Destroy(handle));
    return (hg_return_t)in.number;
}

/* There is no response. */
static hg_return_t on_never(hg_handle_t handle)
{
    return HG_Destroy(handle);
}

static hg_return_t on_end(hg_handle_t handle)
{
    OK(HG_Respond(handle, NULL, NULL, NULL));
    ended = 1;
    return HG_Destroy(handle);
}

void register_calls(struct side *side)
{
    hg_class_t *class = side->class;

    own = side;
    side->null = MERCURY_REGISTER(class, "null", void, void, on_null);
    side->sum = MERCURY_REGISTER(class, "sum", sum_in_t, sum_out_t, on_sum);
    side->echo = MERCURY_REGISTER(class, "echo", text_t, text_t, on_echo);
    side->pull = MERCURY_REGISTER(class, "pull", bulk_in_t, number_t, on_pull);
    side->push = MERCURY_REGISTER(class, "push", bulk_in_t, number_t, on_push);
    side->relay = MERCURY_REGISTER(class, "relay", relay_in_t, number_t, on_relay);
    side->count = MERCURY_REGISTER(class, "count", bulk_in_t, number_t, on_count);
    side->oneway = MERCURY_REGISTER(class, "oneway", number_t, void, on_oneway);
    OK(HG_Registered_disable_response(class, side->oneway, 1));
    side->never = MERCURY_REGISTER(class, "never", void, void, on_never);
    side->fail = MERCURY_REGISTER(class, "fail", number_t, number_t, on_fail);
    side->end = MERCURY_REGISTER(class, "end", void, void, on_end);
}

void serve_calls(struct side *side, int fd)
{
    char name[512] = {0};
    hg_size_t size = sizeof(name);
    hg_addr_t addr;

    OK(HG_Addr_self(side->class, &addr));
    OK(HG_Addr_to_string(side->class, name, &size, addr));
    OK(HG_Addr_free(side->class, addr));
    CHECK(write(fd, name, sizeof(name)) == sizeof(name));
    close(fd);
    while (!ended)
        turn(side, 1000);
    OK(HG_Context_destroy(side->context));
    OK(HG_Finalize(side->class));
    exit(0);
}
