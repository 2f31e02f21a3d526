#include "base/error.h"

#include <stdio.h>
#include <string.h>

void gmi_error_clear(gm_error *error)
{
    if (error == NULL) return;
    *error = (gm_error){ .status = GM_OK, .rank = -1, .culprit = -1, .step = -1 };
}

gm_status gmi_error_setv(gm_error *error, gm_status status, const char *format, va_list args)
{
    if (error == NULL || error->status != GM_OK) return status;
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, args);
    return status;
}

void gmi_error_write(gm_error *error, gm_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gmi_error_setv(error, status, format, args);
    va_end(args);
}

/* glibc's own returns the text, that of POSIX whether there is one. */
static const char *reason_of(int sys_errno, char *text, size_t text_bytes)
{
#ifdef __GLIBC__
    return strerror_r(sys_errno, text, text_bytes);
#else
    return strerror_r(sys_errno, text, text_bytes) == 0 ? text : "an unknown error";
#endif
}

void gmi_error_write_errno(gm_error *error, int sys_errno, const char *format, ...)
{
    if (error == NULL || error->status != GM_OK) return;
    va_list args;
    va_start(args, format);
    gmi_error_setv(error, sys_errno == ENOMEM ? GM_ERR_NOMEM : GM_ERR_SYSTEM, format, args);
    va_end(args);
    error->sys_errno = sys_errno;
    size_t used = strlen(error->text);
    char reason[96];
    snprintf(error->text + used, sizeof error->text - used, ": %s",
             reason_of(sys_errno, reason, sizeof reason));
}
