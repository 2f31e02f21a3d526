/* profile.h - what "auto" chooses by, as lines of text: the constants of the cost model, and what was measured outright.
 *
 *     loopback.turn_ns=1250                                          KIND.CONSTANT=NUMBER
 *     loopback.4on2.all_reduce=exchange:8192,doubling:32768,ring     KIND.RANKSonCORES.COLLECTIVE=ALGORITHM:BYTES,...
 *
 * The second: of 4 ranks on 2 cores exchange is fastest up to 8 KiB of the whole buffer, doubling up to 32 KiB, the ring
 * beyond. Of ranks on 3 hosts the site is "network.6on2at3", with the cores of a host. Empty lines, lines that begin with
 * '#', and keys of no KIND (others keep theirs in the file) are passed over. */
#ifndef GMI_PROFILE_H
#define GMI_PROFILE_H

#include "coll/cost.h"

enum { GMI_SITE_TEXT_BYTES = 48, GMI_CHOICES_TEXT_BYTES = 512 };

/* From measurements of one machine of 2 cores (docs/tuning.md), but the network, which is one of 10 Gbit/s. */
void gmi_profile_builtin(struct gmi_profile *profile);

/* Lines over what *profile holds. The first one that says something of a KIND takes away all choices that were there for
 * it: they go with other constants. 0, or the number of the first line that is wrong, and *why, a clause. `text` is
 * changed. */
int gmi_profile_read(struct gmi_profile *profile, char *text, const char **why);

/* The algorithm (gmi_algo.id) that was measured to be fastest; 0: nothing was measured there. */
uint8_t gmi_profile_choice(const struct gmi_profile *profile, struct gmi_site site, int collective, uint64_t total_bytes);

/* Takes the place of what is there for this site and collective. False: there are too many. */
bool gmi_profile_set_choices(struct gmi_profile *profile, const struct gmi_choice *choices, size_t n_choices);

const char *gmi_link_constant_name(int index);

/* "loopback.4on2". */
const char *gmi_site_text(struct gmi_site site, char text[GMI_SITE_TEXT_BYTES]);
/* That back; *end is behind it. False: it is none. */
bool gmi_site_read(struct gmi_site *site, const char *text, const char **end);

/* "exchange:8192,doubling:32768,ring". */
const char *gmi_choices_text(const struct gmi_choice *choices, size_t n_choices, char text[GMI_CHOICES_TEXT_BYTES]);

#endif
