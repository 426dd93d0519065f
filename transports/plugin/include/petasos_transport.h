/* A transport for Petasos, loaded at run time: what it exports. The page of the module `table` of
 * the crate petasos-plugin says the same, and how versions go together.
 *
 *   const struct petasos_library petasos_transports = {
 *     PETASOS_MAGIC, PETASOS_VERSION, sizeof(struct petasos_table), 1, 0, &my_table
 *   };
 *
 * The program calls, the plug-in answers. Functions of one endpoint are called by one thread at a
 * time. None may block. Memory that is passed belongs to the program, for the call alone. */
#ifndef PETASOS_TRANSPORT_H
#define PETASOS_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#define PETASOS_MAGIC {'P', 'E', 'T', 'A', 'S', 'O', 'S', 0}
#define PETASOS_VERSION 1u
/* In the place of a line: the listener. */
#define PETASOS_LISTENER UINT32_MAX
#define PETASOS_READABLE 1u
#define PETASOS_WRITABLE 2u

enum petasos_status_values {
  PETASOS_OK = 0,
  PETASOS_LATER = 1,    /* not now */
  PETASOS_CLOSED = 2,   /* the line is at its end; the text may say why */
  PETASOS_REFUSED = 3,  /* nothing listens there */
  PETASOS_ERROR = 4,    /* it is not possible; the text says why */
  PETASOS_PANICKED = 5  /* a bug: the endpoint is of no more use */
};
/* One of them. */
typedef int32_t petasos_status;

/* UTF-8, without a zero at its end. */
struct petasos_text {
  const char *at;
  size_t len;
};

/* Room for text: write up to `capacity` bytes to `at`, and how many to `len`. */
struct petasos_room {
  char *at;
  size_t capacity;
  size_t len;
};

struct petasos_opened {
  void *endpoint;       /* the first argument of the other functions; not null */
  int32_t fd;           /* readable while `poll` would find something; -1: none */
  uint32_t max_packet;  /* bytes; 1024 to 16 MiB; the same for all that talk to each other */
};

struct petasos_ready {
  uint32_t line;
  uint32_t what;  /* PETASOS_READABLE, PETASOS_WRITABLE or both */
};

struct petasos_table {
  struct petasos_text scheme;  /* small letters, digits and `-` */
  struct petasos_text title;   /* what it is, in a few words */
  struct petasos_text any;     /* an address that any number of endpoints can be opened with */

  /* OK, or ERROR with a text. By any thread, also at the same time. */
  petasos_status (*open)(struct petasos_text address, struct petasos_opened *opened,
                         struct petasos_room *why);
  /* Frees the endpoint. `home` is 0 in a forked child: then do nothing that others would notice. */
  void (*close)(void *endpoint, uint32_t home);
  /* OK: the endpoint's address, complete. */
  petasos_status (*address)(void *endpoint, struct petasos_room *into);
  /* Begins a line, under this number: OK, REFUSED or ERROR. */
  petasos_status (*connect)(void *endpoint, uint32_t line, struct petasos_text to,
                            struct petasos_room *why);
  /* Takes a line that another endpoint began, under this number: OK or LATER. */
  petasos_status (*accept)(void *endpoint, uint32_t line, struct petasos_room *why);
  /* Sends a packet on a connected line, all of it or nothing: OK, LATER or CLOSED. */
  petasos_status (*send)(void *endpoint, uint32_t line, const uint8_t *packet, size_t len,
                         struct petasos_room *why);
  /* A packet of an accepted line, and its length: OK, LATER or CLOSED. Of a connected line: whether
   * it has ended. */
  petasos_status (*receive)(void *endpoint, uint32_t line, uint8_t *into, size_t capacity,
                            size_t *len, struct petasos_room *why);
  /* Ends a line. Its number may be used again. */
  void (*shut)(void *endpoint, uint32_t line);
  /* OK: what is ready, at most `capacity`, and how many. What is not dealt with is found again. */
  petasos_status (*poll)(void *endpoint, struct petasos_ready *ready, size_t capacity,
                         size_t *count, struct petasos_room *why);
  /* Before the descriptor is waited for. OK: in how many nanoseconds to poll at the latest (all
   * bits set: never). LATER: at once. */
  petasos_status (*arm)(void *endpoint, uint64_t *within, struct petasos_room *why);
};

/* Exported as `petasos_transports`. */
struct petasos_library {
  uint8_t magic[8];
  uint32_t version;
  uint32_t table_size;  /* sizeof(struct petasos_table) */
  uint32_t count;       /* of tables */
  uint32_t reserved;
  const struct petasos_table *tables;
};

#endif
