// Every error the runtime reports: its stable id, the status of the C API, and what it is about. The text that a
// person reads is written where the cause is known; tests pin it.
#pragma once

#include "tessera/tessera.h"

namespace tessera {

struct RuntimeErrorKind {
  char id[12];
  tessera_status status;
  const char* about;
};

inline constexpr RuntimeErrorKind kErrNotFound{"TSR-7001", TESSERA_NOT_FOUND, "module file does not exist"};
inline constexpr RuntimeErrorKind kErrUnreadable{"TSR-7002", TESSERA_BAD_MODULE, "module file cannot be read"};
inline constexpr RuntimeErrorKind kErrNotAModule{"TSR-7003", TESSERA_BAD_MODULE, "no footer at the end"};
inline constexpr RuntimeErrorKind kErrFormatVersion{"TSR-7004", TESSERA_BAD_MODULE, "module of another format version"};
inline constexpr RuntimeErrorKind kErrFooterDigest{"TSR-7005", TESSERA_BAD_MODULE, "damaged footer"};
inline constexpr RuntimeErrorKind kErrFileSize{"TSR-7006", TESSERA_BAD_MODULE, "file size is not the recorded one"};
inline constexpr RuntimeErrorKind kErrLayout{"TSR-7007", TESSERA_BAD_MODULE, "section out of its place"};
inline constexpr RuntimeErrorKind kErrPadding{"TSR-7008", TESSERA_BAD_MODULE, "padding is not zero"};
inline constexpr RuntimeErrorKind kErrSectionDigest{"TSR-7009", TESSERA_BAD_MODULE, "damaged section"};
inline constexpr RuntimeErrorKind kErrAbiVersion{"TSR-7010", TESSERA_BAD_MODULE, "module for another interface"};
inline constexpr RuntimeErrorKind kErrDescriptor{"TSR-7011", TESSERA_BAD_MODULE, "inconsistent descriptor"};
inline constexpr RuntimeErrorKind kErrElf{"TSR-7012", TESSERA_BAD_MODULE, "code part is not a shared object"};
inline constexpr RuntimeErrorKind kErrMachine{"TSR-7013", TESSERA_UNSUPPORTED, "module for another machine"};
inline constexpr RuntimeErrorKind kErrCpuFeatures{"TSR-7014", TESSERA_UNSUPPORTED, "processor lacks features"};
inline constexpr RuntimeErrorKind kErrCodeLoad{"TSR-7015", TESSERA_BAD_MODULE, "code part cannot be loaded"};
inline constexpr RuntimeErrorKind kErrMemory{"TSR-7016", TESSERA_OUT_OF_MEMORY, "not enough memory"};
inline constexpr RuntimeErrorKind kErrMemoryFile{"TSR-7017", TESSERA_UNSUPPORTED, "no anonymous file for a module"};
inline constexpr RuntimeErrorKind kErrNoValuesLibrary{"TSR-7018", TESSERA_UNSUPPORTED, "no library for its values"};
inline constexpr RuntimeErrorKind kErrDevice{"TSR-7019", TESSERA_UNSUPPORTED, "no device that it needs"};
inline constexpr RuntimeErrorKind kErrNullArgument{"TSR-7020", TESSERA_INVALID_ARGUMENT, "null pointer given"};
inline constexpr RuntimeErrorKind kErrOptionsSize{"TSR-7021", TESSERA_INVALID_ARGUMENT, "options without their size"};
inline constexpr RuntimeErrorKind kErrThreadCount{"TSR-7022", TESSERA_INVALID_ARGUMENT, "thread count out of range"};
inline constexpr RuntimeErrorKind kErrThreadStart{"TSR-7023", TESSERA_OUT_OF_MEMORY, "thread cannot be started"};
inline constexpr RuntimeErrorKind kErrSessionBusy{"TSR-7024", TESSERA_INVALID_ARGUMENT, "session already runs"};
inline constexpr RuntimeErrorKind kErrStatesVoid{"TSR-7025", TESSERA_INVALID_ARGUMENT, "states hold nothing"};
inline constexpr RuntimeErrorKind kErrDeviceRun{"TSR-7026", TESSERA_DEVICE_FAILED, "a device has failed in a run"};
inline constexpr RuntimeErrorKind kErrVariant{"TSR-7027", TESSERA_INVALID_ARGUMENT, "no such variant in a module"};
inline constexpr RuntimeErrorKind kErrEntry{"TSR-7028", TESSERA_NOT_FOUND, "no such module in a bundle"};
inline constexpr RuntimeErrorKind kErrShare{"TSR-7029", TESSERA_INVALID_ARGUMENT, "states cannot be shared"};
inline constexpr RuntimeErrorKind kErrTensorCount{"TSR-7030", TESSERA_INVALID_ARGUMENT, "wrong number of tensors"};
inline constexpr RuntimeErrorKind kErrTensorDtype{"TSR-7031", TESSERA_INVALID_ARGUMENT, "tensor of another dtype"};
inline constexpr RuntimeErrorKind kErrTensorRank{"TSR-7032", TESSERA_INVALID_ARGUMENT, "tensor of another rank"};
inline constexpr RuntimeErrorKind kErrTensorDims{"TSR-7033", TESSERA_INVALID_ARGUMENT, "tensor of another shape"};
inline constexpr RuntimeErrorKind kErrSymbolRange{"TSR-7034", TESSERA_INVALID_ARGUMENT, "dimension out of range"};
inline constexpr RuntimeErrorKind kErrSymbolConflict{"TSR-7035", TESSERA_INVALID_ARGUMENT, "one name, two values"};
inline constexpr RuntimeErrorKind kErrTensorNull{"TSR-7036", TESSERA_INVALID_ARGUMENT, "tensor without data"};
inline constexpr RuntimeErrorKind kErrTensorAlign{"TSR-7037", TESSERA_INVALID_ARGUMENT, "tensor data is not aligned"};
inline constexpr RuntimeErrorKind kErrTensorOverlap{"TSR-7038", TESSERA_INVALID_ARGUMENT, "output shares memory"};
inline constexpr RuntimeErrorKind kErrModuleCode{"TSR-7039", TESSERA_INTERNAL, "compiled code reported an error"};
inline constexpr RuntimeErrorKind kErrValueCheck{"TSR-7040", TESSERA_INVALID_ARGUMENT, "values of another shape"};

inline constexpr RuntimeErrorKind kErrStep{"TSR-7041", TESSERA_INVALID_ARGUMENT, "a step that cannot be done"};
inline constexpr RuntimeErrorKind kErrValueKind{"TSR-7042", TESSERA_INVALID_ARGUMENT, "value of another kind"};
inline constexpr RuntimeErrorKind kErrHasValues{"TSR-7043", TESSERA_INVALID_ARGUMENT, "other function to run"};
inline constexpr RuntimeErrorKind kErrNotUtf8{"TSR-7044", TESSERA_INVALID_ARGUMENT, "string is not UTF-8"};

// Fills `error` (if not null) and returns the kind's status, so that callers can write `return fail(...)`.
__attribute__((format(printf, 3, 4))) tessera_status fail(tessera_error* error, const RuntimeErrorKind& kind,
                                                          const char* format, ...);

// A string from outside, cut so that a message built around it keeps its own words: control characters become '?',
// cuts happen between UTF-8 characters and show as "...".
struct ClippedText {
  char text[244];
};
ClippedText clip_name(const char* name);  // keeps the beginning
ClippedText clip_path(const char* path);  // keeps the end

}  // namespace tessera
