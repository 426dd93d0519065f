#ifndef MERCURY_QUEUE_H
#define MERCURY_QUEUE_H

#include <sys/queue.h>

#endif
