#include "reduce/codec.h"

#include "reduce/kernels.h"

struct gmi_codec gmi_codec_mover(size_t elem_bytes)
{
    return (struct gmi_codec){ .id = GMI_CODEC_IDENTITY, .name = "identity", .elem_bytes = elem_bytes };
}

gm_status gmi_codec_find(struct gmi_codec *codec, gm_dtype dtype, gm_redop redop)
{
    if ((unsigned)dtype >= GM_DTYPE_END || (unsigned)redop >= GM_REDOP_END) return GM_ERR_ARG;
    const struct gmi_kernels *kernels = &gmi_kernels[dtype];
    if (redop == GM_AVG && kernels->divide == NULL) return GM_ERR_UNSUPPORTED;
    *codec = gmi_codec_mover(gm_dtype_bytes(dtype));
    codec->combine = kernels->combine[redop];
    codec->finish = redop == GM_AVG ? kernels->divide : NULL;
    codec->canonicalize = kernels->canonicalize;
    return GM_OK;
}
