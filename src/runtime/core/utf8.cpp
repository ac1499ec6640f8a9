#include "runtime/core/utf8.h"

#include <stdint.h>
#include <string.h>

namespace tessera {

bool is_utf8(const char* text) { return is_utf8(text, strlen(text)); }

bool is_utf8(const char* text, size_t size) {
  const unsigned char* at = reinterpret_cast<const unsigned char*>(text);
  const unsigned char* const end = at + size;
  while (at != end) {
    const unsigned char lead = *at++;
    if (lead < 0x80) continue;
    int more;
    uint32_t code, smallest;
    if ((lead & 0xe0) == 0xc0) {
      more = 1, code = lead & 0x1fu, smallest = 0x80;
    } else if ((lead & 0xf0) == 0xe0) {
      more = 2, code = lead & 0x0fu, smallest = 0x800;
    } else if ((lead & 0xf8) == 0xf0) {
      more = 3, code = lead & 0x07u, smallest = 0x10000;
    } else {
      return false;
    }
    for (; more > 0; --more, ++at) {
      if (at == end || (*at & 0xc0) != 0x80) return false;
      code = code << 6 | (*at & 0x3fu);
    }
    if (code < smallest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
  }
  return true;
}

}  // namespace tessera
