/* log.h - one sink, set by the caller, silent without one. */
#ifndef GMI_LOG_H
#define GMI_LOG_H

#include "gradmesh.h"

struct gmi_log {
    gm_log_fn    write; /* NULL: silence */
    void        *user;
    gm_log_level level; /* lines above it are dropped */
};

void gmi_log(const struct gmi_log *log, gm_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
