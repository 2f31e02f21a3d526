/* refuse.h - system calls that the kernel refuses, as it does when descriptors or memory are used up, or as the policy of a
 * container may. */
#ifndef TESTS_REFUSE_H
#define TESTS_REFUSE_H

#include <stdbool.h>

/* Of this process, all threads of it, from now on and for good. False: there is no such filter here. */
bool refuse_calls(const int *calls, int n_calls, int sys_errno);

#endif
