/* dtype.c - sizes and names of element types, reductions and collectives, one row each. */
#include "gradmesh.h"

static const struct {
    const char *name;
    size_t      elem_bytes;
} dtypes[GM_DTYPE_END] = {
    [GM_F32] = { "f32", 4 }, [GM_F64] = { "f64", 8 }, [GM_I32] = { "i32", 4 }, [GM_I64] = { "i64", 8 },
    [GM_I8] = { "i8", 1 },   [GM_U8] = { "u8", 1 },   [GM_U32] = { "u32", 4 }, [GM_U64] = { "u64", 8 },
    [GM_F16] = { "f16", 2 }, [GM_BF16] = { "bf16", 2 },
};

static const char *const redops[GM_REDOP_END] = {
    [GM_SUM] = "sum",   [GM_MIN] = "min",   [GM_MAX] = "max", [GM_AVG] = "avg",
    [GM_PROD] = "prod", [GM_BAND] = "band", [GM_BOR] = "bor", [GM_BXOR] = "bxor",
    [GM_SUM_EXACT] = "sum_exact",
};

static const char *const collectives[GM_COLLECTIVE_END] = {
    [GM_ALL_REDUCE] = "all_reduce", [GM_REDUCE_SCATTER] = "reduce_scatter",
    [GM_ALL_GATHER] = "all_gather", [GM_BROADCAST] = "broadcast",
    [GM_BARRIER] = "barrier",
    [GM_REDUCE] = "reduce",
    [GM_GATHER] = "gather",
    [GM_SCATTER] = "scatter",
    [GM_ALL_TO_ALL] = "all_to_all",
    [GM_SEND] = "send",
    [GM_RECV] = "recv",
    [GM_SENDRECV] = "sendrecv",
};

size_t gm_dtype_bytes(gm_dtype dtype)
{
    return (unsigned)dtype < GM_DTYPE_END ? dtypes[dtype].elem_bytes : 0;
}
const char *gm_dtype_name(gm_dtype dtype)
{
    return (unsigned)dtype < GM_DTYPE_END ? dtypes[dtype].name : "?";
}
const char *gm_redop_name(gm_redop redop)
{
    if (redop >= GM_REDOP_USER && redop < GM_REDOP_USER_END) return "user";
    return (unsigned)redop < GM_REDOP_END ? redops[redop] : "?";
}
const char *gm_collective_name(gm_collective which)
{
    return (unsigned)which < GM_COLLECTIVE_END ? collectives[which] : "?";
}
