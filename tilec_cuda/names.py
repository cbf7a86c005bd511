"""Names that device code must not declare: CUDA's keywords, variables, types and functions.

The words of C and C++ are in `tilec.backend.c_family.names`.
"""

from __future__ import annotations

_VECTORS = tuple(
    f"{kind}{count}"
    for kind in ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong",
                 "ulonglong", "float", "double")
    for count in (1, 2, 3, 4)
)  # fmt: skip
_WORDS = """
threadIdx blockIdx blockDim gridDim warpSize dim3 half bfloat16 half2 nv_bfloat16 uint ushort uchar
ulong size_t ptrdiff_t clock clock64 printf memcpy memset malloc free abort exit min max abs labs
llabs div signbit isnan isinf isfinite isnormal fabs fabsf fmin fminf fmax fmaxf fma fmaf sqrt sqrtf
rsqrt rsqrtf cbrt exp expf exp2 exp2f exp10 exp10f expm1 log logf log2 log2f log10 log10f log1p
log1pf logb sin sinf cos cosf tan tanf sincos sinh sinhf cosh coshf tanh tanhf asin asinf acos acosf
atan atanf atan2 atan2f asinh asinhf acosh acoshf atanh atanhf pow powf floor floorf ceil ceilf
trunc truncf round roundf rint rintf nearbyint nearbyintf lround llround lrint remainder remquo
fmod fmodf modf frexp ldexp scalbn ilogb copysign copysignf nextafter hypot hypotf norm rnorm erf
erff erfc erfcf erfinv lgamma tgamma gamma j0 j1 jn y0 y1 yn normcdf cyl_bessel_i0 saturate
atomicAdd atomicSub atomicExch atomicMin atomicMax atomicInc atomicDec atomicCAS atomicAnd atomicOr
atomicXor all any ballot mul24 umul24 mulhi umulhi surface texture std cuda nv
"""
RESERVED: tuple[str, ...] = tuple(sorted({*_WORDS.split(), *_VECTORS}))
