#include "cli/blas_words.h"

#include <stdio.h>
#include <stdlib.h>

#include "train/blas_core.h"

void cli_say_blas(const char *command)
{
    const char *core, *better = gmt_blas_better_core_here(&core);
    if (better == NULL || getenv("OPENBLAS_CORETYPE") != NULL) return;
    fprintf(stderr, "gradmesh %s: warning: OpenBLAS does not know this processor and computes as on a %s, which may take several times as "
            "long; OPENBLAS_CORETYPE=%s in the environment makes it use what is there\n", command, core, better);
}
