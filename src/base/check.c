#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void gmi_check_failed(const char *file, int line, const char *expression)
{
    fprintf(stderr, "gradmesh: internal error at %s:%d: %s does not hold; please report this\n", file, line,
            expression);
    abort();
}
