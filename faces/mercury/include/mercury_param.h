#ifndef MERCURY_PARAM_H
#define MERCURY_PARAM_H

#include <sys/param.h>

#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef powerof2
#define powerof2(x) ((((x)-1) & (x)) == 0)
#endif

#endif
