/* error.h - filling an error record.
 *
 * A record belongs to an object and is written once: the first cause wins (gmi_error_set keeps a record
 * that already holds a failure). */
#ifndef GMI_ERROR_H
#define GMI_ERROR_H

#include <stdarg.h>

#include "gradmesh.h"

/* Empties the record: GM_OK, rank, culprit and step -1. NULL is fine. */
void gmi_error_clear(gm_error *error);

/* Sets status and sentence, unless the record holds a failure already or is NULL. Returns `status`. */
gm_status gmi_error_set(gm_error *error, gm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
gm_status gmi_error_setv(gm_error *error, gm_status status, const char *format, va_list args);

/* The same for a refused system call: GM_ERR_SYSTEM (GM_ERR_NOMEM for ENOMEM), keeps sys_errno and adds
 * ": " and its text. */
gm_status gmi_error_set_errno(gm_error *error, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
