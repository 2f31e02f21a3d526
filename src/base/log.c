#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void gmi_log(const struct gmi_log *log, gm_log_level level, const char *format, ...)
{
    if (log == NULL || log->write == NULL || level > log->level) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log->write(log->user, level, line);
}
