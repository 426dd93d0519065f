/* The number of a call's name: djb2, in 32 bits. */
#ifndef MERCURY_HASH_STRING_H
#define MERCURY_HASH_STRING_H

#include "mercury_util_config.h"

static HG_UTIL_INLINE unsigned int hg_hash_string(const char *string)
{
    unsigned int hash = 5381;

    while (*string != '\0')
        hash = hash * 33 + (unsigned char)*string++;
    return hash;
}

#endif
