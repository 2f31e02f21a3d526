/* control_parts.h - what the files of the control connections share: control.c (failures, goodbyes, messages),
 * control_gather.c (start-up), control_waits.c (who waits for whom), control_pulse.c (heartbeats). */
#ifndef GMI_CONTROL_PARTS_H
#define GMI_CONTROL_PARTS_H

#include "comm/control.h"

static inline bool gmi_control_is_hub(const struct gmi_control *c) { return c->rank == c->hub; }

/* ---- control.c ---- */
void gmi_control_send_to_hub(struct gmi_control *c, enum gmi_message kind, const struct gmi_buffer *body);
/* At once, or as soon as it is connected. */
void gmi_control_send_to(struct gmi_control *c, int rank, enum gmi_message kind, const struct gmi_buffer *body);
/* To everybody with whom we have a connection, except one rank (-1: nobody). */
void gmi_control_send_to_all_but(struct gmi_control *c, int spared, enum gmi_message kind, const struct gmi_buffer *body);
/* The failure came from this rank (-1: it is our own): records it, unless there is one, and passes it on. */
void gmi_control_fail_from(struct gmi_control *c, const struct gmi_failure *failure, int from);
void gmi_control_fail_after(struct gmi_control *c, const struct gmi_failure *failure, int after_ms);
void gmi_control_bad_message(struct gmi_control *c, int from);

void gmi_control_send_goodbye(struct gmi_control *c, int spared, int rank, uint64_t seq);

/* ---- control_move.c ---- */
/* The middle has said goodbye: who is next? */
void gmi_control_move(struct gmi_control *c);
/* May this rank connect to us as to the new middle? */
gm_status gmi_control_judge_move(struct gmi_control *c, const struct gmi_hello *peer, char *why, size_t why_bytes);
/* Takes the connection of a rank that was expected, and sends what was held for it. */
void gmi_control_connect(struct gmi_control *c, int rank, struct gmi_stream stream);
/* Do we expect to be connected to it in a moment? */
bool gmi_control_is_expected(const struct gmi_control *c, int rank);

/* ---- control_gather.c ---- */
void gmi_control_hear_join(struct gmi_control *c, int from, struct gmi_reader *r);
bool gmi_control_hear_ready(struct gmi_control *c, struct gmi_reader *r);
void gmi_control_tell_who_is_missing(struct gmi_control *c);
void gmi_control_tell_who_is_missing_soon(struct gmi_control *c);

/* ---- control_waits.c ---- */
void gmi_control_put_descriptor(struct gmi_buffer *body, const struct gmi_descriptor *call);
/* The call of the rank that sent this; false: bad bytes. */
bool gmi_control_take_descriptor(struct gmi_reader *r, int from, struct gmi_descriptor *call);
void gmi_control_note_waiting(struct gmi_control *c, const struct gmi_descriptor *call, int peer, bool has_entered);
void gmi_control_hear_waiting(struct gmi_control *c, int from, struct gmi_reader *r);
void gmi_control_hear_stalled(struct gmi_control *c, int from, struct gmi_reader *r);
/* The middle: says now and then for whom a call has waited for long. */
void gmi_control_name_stragglers(struct gmi_control *c, int64_t now_ns);
void gmi_control_hear_note(struct gmi_control *c, int from, struct gmi_reader *r);

/* ---- control_pulse.c ---- */
void    gmi_control_heard(struct gmi_control *c, int rank);
void    gmi_control_pulse_step(struct gmi_control *c);
int64_t gmi_control_pulse_next_ns(const struct gmi_control *c);
void    gmi_control_hear_beat(struct gmi_control *c, int from, struct gmi_reader *r);
void    gmi_control_hear_look(struct gmi_control *c, int from, struct gmi_reader *r);
void    gmi_control_hear_seen(struct gmi_control *c, int from, struct gmi_reader *r);

#endif
