/* Logs of programs of their own, under names ("outlets") that are switched by HG_LOG_LEVEL and
 * HG_LOG_SUBSYS, as the library's is: see HG_Set_log_level. All of it is here, so that a program
 * logs in its own format; nothing of it is in the library. */
#ifndef MERCURY_LOG_H
#define MERCURY_LOG_H

#include "mercury_util_config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum hg_log_level {
    HG_LOG_LEVEL_NONE,
    HG_LOG_LEVEL_FATAL,
    HG_LOG_LEVEL_ERROR,
    HG_LOG_LEVEL_WARNING,
    HG_LOG_LEVEL_MIN_DEBUG,
    HG_LOG_LEVEL_INFO,
    HG_LOG_LEVEL_DEBUG,
    HG_LOG_LEVEL_MAX
};

enum hg_log_state { HG_LOG_PASS, HG_LOG_OFF, HG_LOG_ON };

struct hg_log_outlet {
    const char *name;
    enum hg_log_state state;
    enum hg_log_level level; /* NONE until it is first asked for */
    struct hg_log_outlet *parent;
    void *debug_log;
};

#define HG_UTIL_CAT(x, y) x##y
#define HG_UTIL_CATU(x, y) x##_##y
#define HG_UTIL_STRINGIFY(x) #x

#define HG_LOG_OUTLET(name) HG_UTIL_CATU(name, log_outlet_g)
#define HG_LOG_OUTLET_DECL(name) struct hg_log_outlet HG_LOG_OUTLET(name)
#define HG_LOG_OUTLET_SUBSYS_DECL(name, parent)                                                    \
    struct hg_log_outlet HG_LOG_OUTLET(HG_UTIL_CATU(parent, name))
#define HG_LOG_OUTLET_INITIALIZER(name, state, parent, debug_log)                                  \
    {                                                                                              \
        HG_UTIL_STRINGIFY(name), state, HG_LOG_LEVEL_NONE, parent, debug_log                        \
    }
#define HG_LOG_OUTLET_SUBSYS_INITIALIZER(name, parent)                                             \
    HG_LOG_OUTLET_INITIALIZER(name, HG_LOG_PASS, &HG_LOG_OUTLET(parent), NULL)
#define HG_LOG_DECL_REGISTER(name)                                                                 \
    HG_LOG_OUTLET_DECL(name) = HG_LOG_OUTLET_INITIALIZER(name, HG_LOG_PASS, NULL, NULL)
#define HG_LOG_SUBSYS_DECL_REGISTER(name, parent)                                                  \
    HG_LOG_OUTLET_SUBSYS_DECL(name, parent) = HG_LOG_OUTLET_SUBSYS_INITIALIZER(name, parent)

#ifdef __cplusplus
extern "C" {
#endif

static HG_UTIL_INLINE enum hg_log_level hg_log_name_to_level(const char *name)
{
    static const char *const names[] = {
        "none", "fatal", "error", "warning", "min_debug", "info", "debug"};
    int level;

    for (level = 0; name != NULL && level < HG_LOG_LEVEL_MAX; level++)
        if (strcasecmp(name, names[level]) == 0)
            return (enum hg_log_level)level;
    return HG_LOG_LEVEL_NONE;
}

static HG_UTIL_INLINE const char *hg_log_level_to_string(enum hg_log_level level)
{
    static const char *const names[] = {
        "none", "fatal", "error", "warning", "min_debug", "info", "debug", ""};

    return names[level];
}

/* Whether the outlet says what matters so much. */
static HG_UTIL_INLINE bool hg_log_is_on(
    struct hg_log_outlet *outlet, enum hg_log_level level)
{
    if (outlet->level == HG_LOG_LEVEL_NONE) {
        const char *name = getenv("HG_LOG_LEVEL");

        outlet->level = name != NULL ? hg_log_name_to_level(name) : HG_LOG_LEVEL_ERROR;
        if (outlet->level == HG_LOG_LEVEL_NONE)
            outlet->state = HG_LOG_OFF;
    }
    return outlet->state != HG_LOG_OFF && level <= outlet->level;
}

static HG_UTIL_INLINE void hg_log_vwrite(struct hg_log_outlet *outlet, enum hg_log_level level,
    const char *module, const char *file, unsigned int line, const char *func, bool no_return,
    const char *format, va_list arguments)
{
    fprintf(stderr, "# %s->%s: [%s] %s:%u %s(): ", module != NULL ? module : "mercury",
        outlet->name, hg_log_level_to_string(level), file, line, func);
    vfprintf(stderr, format, arguments);
    if (!no_return)
        fputc('\n', stderr);
}

static HG_UTIL_INLINE HG_UTIL_PRINTF(8, 9) void hg_log_write(struct hg_log_outlet *outlet,
    enum hg_log_level level, const char *module, const char *file, unsigned int line,
    const char *func, bool no_return, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    hg_log_vwrite(outlet, level, module, file, line, func, no_return, format, arguments);
    va_end(arguments);
}

#ifdef __cplusplus
}
#endif

#define HG_LOG_WRITE_FUNC(name, log_level, module, file, line, func, no_return, ...)               \
    do {                                                                                           \
        if (hg_log_is_on(&HG_LOG_OUTLET(name), log_level))                                         \
            hg_log_write(&HG_LOG_OUTLET(name), log_level, module, file, line, func, no_return,     \
                __VA_ARGS__);                                                                      \
    } while (0)
#define HG_LOG_WRITE(name, log_level, ...)                                                         \
    HG_LOG_WRITE_FUNC(                                                                             \
        name, log_level, NULL, __FILE__, __LINE__, __func__, false, __VA_ARGS__)
#define HG_LOG_SUBSYS_WRITE(name, parent, log_level, ...)                                          \
    HG_LOG_WRITE_FUNC(HG_UTIL_CATU(parent, name), log_level, NULL, __FILE__, __LINE__, __func__,   \
        false, __VA_ARGS__)

#endif
