/* Structures with functions that encode and decode them:
 *
 *   MERCURY_GEN_PROC(open_in_t, ((hg_const_string_t)(path))((uint32_t)(flags)))
 *
 * declares the structure and hg_proc_open_in_t, of hg_proc_hg_const_string_t and hg_proc_uint32_t;
 * MERCURY_GEN_STRUCT_PROC makes the function alone. Mercury's are made with Boost; these need no
 * other header.
 */
#ifndef MERCURY_MACROS_H
#define MERCURY_MACROS_H

#include "mercury.h"
#include "mercury_bulk.h"
#include "mercury_proc.h"
#include "mercury_proc_bulk.h"

#define HG_GEN_CAT(a, b) HG_GEN_CAT_(a, b)
#define HG_GEN_CAT_(a, b) a##b

/* Boost's macros come with Mercury's header, and programs use them: where Boost is not installed,
 * there is the one that Margo's headers use. */
#if defined(__has_include)
#if __has_include(<boost/preprocessor.hpp>)
#include <boost/preprocessor.hpp>
#endif
#endif
#ifndef BOOST_PP_CAT
#define BOOST_PP_CAT(a, b) HG_GEN_CAT(a, b)
#endif

/* Each field calls the macro of the next one; the last one has an end. */
#define HG_GEN_FIELDS_A(field) HG_GEN_FIELD field; HG_GEN_FIELDS_B
#define HG_GEN_FIELDS_B(field) HG_GEN_FIELD field; HG_GEN_FIELDS_A
#define HG_GEN_FIELDS_A_END
#define HG_GEN_FIELDS_B_END
#define HG_GEN_FIELD(type) type HG_GEN_NAME
#define HG_GEN_NAME(name) name

#define HG_GEN_PROCS_A(field) HG_GEN_PROC_OF field HG_GEN_PROCS_B
#define HG_GEN_PROCS_B(field) HG_GEN_PROC_OF field HG_GEN_PROCS_A
#define HG_GEN_PROCS_A_END
#define HG_GEN_PROCS_B_END
#define HG_GEN_PROC_OF(type) ret = hg_proc_##type(proc, &struct_data->HG_GEN_PROC_NAME
#define HG_GEN_PROC_NAME(name)                                                                     \
    name);                                                                                         \
    if (ret != HG_SUCCESS)                                                                         \
        return ret;

#define HG_GEN_STRUCT(name, fields)                                                                \
    typedef struct {                                                                               \
        HG_GEN_CAT(HG_GEN_FIELDS_A fields, _END)                                                   \
    } name;

#define HG_GEN_STRUCT_PROC(name, fields)                                                           \
    static HG_INLINE hg_return_t hg_proc_##name(hg_proc_t proc, void *data)                        \
    {                                                                                              \
        hg_return_t ret = HG_SUCCESS;                                                              \
        name *struct_data = (name *)data;                                                          \
        HG_GEN_CAT(HG_GEN_PROCS_A fields, _END)                                                    \
        return ret;                                                                                \
    }

#define MERCURY_GEN_STRUCT_PROC(name, fields) HG_GEN_STRUCT_PROC(name, fields)
#define MERCURY_GEN_PROC(name, fields)                                                             \
    HG_GEN_STRUCT(name, fields)                                                                    \
    HG_GEN_STRUCT_PROC(name, fields)

/* `void` for input or output: there is none. */
#define MERCURY_REGISTER(hg_class, name, in_struct, out_struct, callback)                          \
    HG_Register_name(                                                                              \
        hg_class, name, HG_GEN_CAT(hg_proc_, in_struct), HG_GEN_CAT(hg_proc_, out_struct), callback)
#define hg_proc_void NULL

#endif
