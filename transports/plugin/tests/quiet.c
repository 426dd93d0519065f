/* A plug-in in C of which nothing is ever heard, for tests: lines before it may change one thing. */
#ifndef MAGIC
#define MAGIC PETASOS_MAGIC
#endif
#ifndef VERSION
#define VERSION PETASOS_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof(struct entry)
#endif
#ifndef COUNT
#define COUNT 1
#endif
#ifndef TABLES
#define TABLES &entry[0].table
#endif
#ifndef SCHEME
#define SCHEME "quiet"
#endif
#ifndef ANY
#define ANY SCHEME "://*"
#endif
#ifndef TITLE
#define TITLE "nothing is ever heard"
#endif
#ifndef OPEN
#define OPEN return PETASOS_OK;
#endif
#ifndef ADDRESS
#define ADDRESS "quiet://here"
#endif
#ifndef POLL
#define POLL return PETASOS_OK;
#endif
#ifndef ARM
#define ARM quiet_arm
#endif
#ifndef CONNECT
#define CONNECT return PETASOS_REFUSED;
#endif
#define TEXT(text) { text, sizeof(text) - 1 }

static char endpoint;
static void say(struct petasos_room *room, const char *text) {
  for (room->len = 0; text[room->len] && room->len < room->capacity; room->len++)
    room->at[room->len] = text[room->len];
}
static petasos_status quiet_open(struct petasos_text at, struct petasos_opened *opened,
                                 struct petasos_room *why) {
  opened->endpoint = &endpoint;
  opened->fd = -1;
  opened->max_packet = 4096;
  OPEN
}
static void quiet_close(void *endpoint, uint32_t home) {}
static petasos_status quiet_address(void *endpoint, struct petasos_room *into) {
  say(into, ADDRESS);
  return PETASOS_OK;
}
static petasos_status quiet_connect(void *endpoint, uint32_t line, struct petasos_text to,
                                    struct petasos_room *why) { CONNECT }
static petasos_status quiet_accept(void *endpoint, uint32_t line, struct petasos_room *why) {
  return PETASOS_LATER;
}
static petasos_status quiet_send(void *endpoint, uint32_t line, const uint8_t *packet, size_t len,
                                 struct petasos_room *why) { return PETASOS_LATER; }
static petasos_status quiet_receive(void *endpoint, uint32_t line, uint8_t *into, size_t capacity,
                                    size_t *len, struct petasos_room *why) {
  *len = capacity + 1;
  return PETASOS_OK;
}
static void quiet_shut(void *endpoint, uint32_t line) {}
static petasos_status quiet_poll(void *endpoint, struct petasos_ready *ready, size_t capacity,
                                 size_t *count, struct petasos_room *why) {
  *count = 0;
  POLL
}
static petasos_status quiet_arm(void *endpoint, uint64_t *within, struct petasos_room *why) {
  *within = UINT64_MAX;
  return PETASOS_OK;
}

/* A later version of the table has more functions. */
struct entry {
  struct petasos_table table;
#ifdef MORE
  void (*more)(void);
#endif
};
#define ENTRY(scheme, any) {{                                                       \
  TEXT(scheme), TEXT(TITLE), TEXT(any), quiet_open, quiet_close, quiet_address,     \
  quiet_connect, quiet_accept, quiet_send, quiet_receive, quiet_shut, quiet_poll, ARM }}
static const struct entry entry[] = { ENTRY(SCHEME, ANY), ENTRY("second", "second://*") };
const struct petasos_library petasos_transports = { MAGIC, VERSION, SIZE, COUNT, 0, TABLES };
