#include "runtime/core/dtypes.h"

#include "abi/module_abi.h"

namespace tessera {

int32_t module_dtype_bits(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64:
    case TSR_I64:
    case TSR_U64: return 64;
    case TSR_F32:
    case TSR_I32:
    case TSR_U32: return 32;
    case TSR_F16:
    case TSR_BF16:
    case TSR_I16:
    case TSR_U16: return 16;
    case TSR_F8E4M3FN:
    case TSR_F8E4M3FNUZ:
    case TSR_F8E5M2:
    case TSR_F8E5M2FNUZ:
    case TSR_F8E8M0:
    case TSR_I8:
    case TSR_U8:
    case TSR_BOOL: return 8;
    case TSR_F4E2M1:
    case TSR_I4:
    case TSR_U4: return 4;
    case TSR_I2:
    case TSR_U2: return 2;
    default: return 0;
  }
}

const char* module_dtype_name(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return "f64";
    case TSR_F32: return "f32";
    case TSR_F16: return "f16";
    case TSR_BF16: return "bf16";
    case TSR_F8E4M3FN: return "f8e4m3fn";
    case TSR_F8E4M3FNUZ: return "f8e4m3fnuz";
    case TSR_F8E5M2: return "f8e5m2";
    case TSR_F8E5M2FNUZ: return "f8e5m2fnuz";
    case TSR_F8E8M0: return "f8e8m0";
    case TSR_F4E2M1: return "f4e2m1";
    case TSR_I64: return "i64";
    case TSR_I32: return "i32";
    case TSR_I16: return "i16";
    case TSR_I8: return "i8";
    case TSR_I4: return "i4";
    case TSR_I2: return "i2";
    case TSR_U64: return "u64";
    case TSR_U32: return "u32";
    case TSR_U16: return "u16";
    case TSR_U8: return "u8";
    case TSR_U4: return "u4";
    case TSR_U2: return "u2";
    case TSR_BOOL: return "bool";
    case TSR_STRING: return "string";
    default: return "?";
  }
}

}  // namespace tessera
