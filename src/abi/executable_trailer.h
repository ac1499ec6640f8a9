// The last bytes of a program that `tessera compile --emit exe` writes: launcher, zeros to a multiple of
// TSR_BUFFER_ALIGN, module, trailer.
#ifndef TESSERA_ABI_EXECUTABLE_TRAILER_H_
#define TESSERA_ABI_EXECUTABLE_TRAILER_H_

#include <stdint.h>

#define TSR_EXECUTABLE_MAGIC "tessera program" /* with its zero, 16 bytes */

typedef struct tsr_executable_trailer {
  uint64_t module_offset, module_size;
  char magic[16];
} tsr_executable_trailer;

#endif /* TESSERA_ABI_EXECUTABLE_TRAILER_H_ */
