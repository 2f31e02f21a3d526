#include "cli/whole_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

bool cli_whole_open(struct cli_whole_file *whole, const char *path)
{
    struct stat existing;
    whole->path = path;
    whole->is_special = stat(path, &existing) == 0 && !S_ISREG(existing.st_mode);
    int n = snprintf(whole->temporary, sizeof whole->temporary, "%s.tmp.%d", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof whole->temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    whole->file = fopen(whole->is_special ? path : whole->temporary, whole->is_special ? "we" : "wxe");
    return whole->file != NULL;
}

bool cli_whole_close(struct cli_whole_file *whole, bool is_good)
{
    if (is_good) is_good = fflush(whole->file) == 0 && !ferror(whole->file);
    if (is_good && !whole->is_special) is_good = fsync(fileno(whole->file)) == 0;
    int saved_errno = errno;
    if (fclose(whole->file) != 0 && is_good) {
        is_good = false;
        saved_errno = errno;
    }
    if (whole->is_special) {
        errno = saved_errno;
        return is_good;
    }
    if (is_good && rename(whole->temporary, whole->path) == 0) return true;
    if (is_good) saved_errno = errno;
    unlink(whole->temporary);
    errno = saved_errno;
    return false;
}
