/* error.h - filling an error record.
 *
 * A record belongs to an object and is written once: the first cause wins (gmi_error_set keeps a record
 * that already holds a failure). */
#ifndef GMI_ERROR_H
#define GMI_ERROR_H

#include <errno.h>
#include <stdarg.h>

#include "gradmesh.h"

/* Empties the record: GM_OK, rank, culprit and step -1. NULL is fine. */
void gmi_error_clear(gm_error *error);

/* Sets status and sentence, unless the record holds a failure already or is NULL. Its value is `status`: a macro, so that who sees
 * one file alone, a compiler or an analyzer, sees that too. */
#define gmi_error_set(error, status, ...)                                                          \
    __extension__({                                                                                \
        const gm_status gmi_is_ = (status);                                                        \
        gmi_error_write((error), gmi_is_, __VA_ARGS__);                                            \
        gmi_is_;                                                                                   \
    })
void gmi_error_write(gm_error *error, gm_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
gm_status gmi_error_setv(gm_error *error, gm_status status, const char *format, va_list args);

/* The same for a refused system call: GM_ERR_SYSTEM (GM_ERR_NOMEM for ENOMEM), keeps sys_errno and adds
 * ": " and its text. */
#define gmi_error_set_errno(error, sys_errno, ...)                                                 \
    __extension__({                                                                                \
        const int gmi_why_ = (sys_errno);                                                          \
        gmi_error_write_errno((error), gmi_why_, __VA_ARGS__);                                     \
        gmi_why_ == ENOMEM ? GM_ERR_NOMEM : GM_ERR_SYSTEM;                                         \
    })
void gmi_error_write_errno(gm_error *error, int sys_errno, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
