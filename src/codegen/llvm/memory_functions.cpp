#include "codegen/llvm/memory_functions.h"

#include <string>

#include "support/error.h"

namespace tessera::inline llvm_codegen {
namespace {

// 32 bytes at a time, then one by one. "no-builtins" keeps LLVM from making a call of the function in itself.
constexpr char kFunctions[] = R"(
define weak hidden ptr @memset(ptr %to, i32 %value, i64 %count) "no-builtins" section ".text.memset" {
begin:
  %byte = trunc i32 %value to i8
  %lane = insertelement <32 x i8> poison, i8 %byte, i64 0
  %lanes = shufflevector <32 x i8> %lane, <32 x i8> poison, <32 x i32> zeroinitializer
  %whole = and i64 %count, -32
  br label %blocks
blocks:
  %i = phi i64 [ 0, %begin ], [ %i.next, %block ]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %block, label %bytes
block:
  %to.i = getelementptr i8, ptr %to, i64 %i
  store <32 x i8> %lanes, ptr %to.i, align 1
  %i.next = add i64 %i, 32
  br label %blocks
bytes:
  %j = phi i64 [ %whole, %blocks ], [ %j.next, %single ]
  %left = icmp ult i64 %j, %count
  br i1 %left, label %single, label %end
single:
  %to.j = getelementptr i8, ptr %to, i64 %j
  store i8 %byte, ptr %to.j, align 1
  %j.next = add i64 %j, 1
  br label %bytes
end:
  ret ptr %to
}

define weak hidden ptr @memcpy(ptr %to, ptr %from, i64 %count) "no-builtins" section ".text.memcpy" {
  %result = call ptr @memmove(ptr %to, ptr %from, i64 %count)
  ret ptr %result
}

; Forwards unless that would overwrite bytes before they are read.
define weak hidden ptr @memmove(ptr %to, ptr %from, i64 %count) "no-builtins" section ".text.memmove" {
begin:
  %to.number = ptrtoint ptr %to to i64
  %from.number = ptrtoint ptr %from to i64
  %distance = sub i64 %to.number, %from.number
  %whole = and i64 %count, -32
  %apart = icmp uge i64 %distance, %count
  br i1 %apart, label %blocks, label %back.bytes

blocks:
  %i = phi i64 [ 0, %begin ], [ %i.next, %block ]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %block, label %bytes
block:
  %from.i = getelementptr i8, ptr %from, i64 %i
  %to.i = getelementptr i8, ptr %to, i64 %i
  %lanes = load <32 x i8>, ptr %from.i, align 1
  store <32 x i8> %lanes, ptr %to.i, align 1
  %i.next = add i64 %i, 32
  br label %blocks
bytes:
  %j = phi i64 [ %whole, %blocks ], [ %j.next, %single ]
  %left = icmp ult i64 %j, %count
  br i1 %left, label %single, label %end
single:
  %from.j = getelementptr i8, ptr %from, i64 %j
  %to.j = getelementptr i8, ptr %to, i64 %j
  %byte = load i8, ptr %from.j, align 1
  store i8 %byte, ptr %to.j, align 1
  %j.next = add i64 %j, 1
  br label %bytes

back.bytes:
  %k = phi i64 [ %count, %begin ], [ %k.next, %back.single ]
  %back.left = icmp ugt i64 %k, %whole
  br i1 %back.left, label %back.single, label %back.blocks
back.single:
  %k.next = sub i64 %k, 1
  %from.k = getelementptr i8, ptr %from, i64 %k.next
  %to.k = getelementptr i8, ptr %to, i64 %k.next
  %back.byte = load i8, ptr %from.k, align 1
  store i8 %back.byte, ptr %to.k, align 1
  br label %back.bytes
back.blocks:
  %l = phi i64 [ %whole, %back.bytes ], [ %l.next, %back.block ]
  %back.more = icmp ne i64 %l, 0
  br i1 %back.more, label %back.block, label %end
back.block:
  %l.next = sub i64 %l, 32
  %from.l = getelementptr i8, ptr %from, i64 %l.next
  %to.l = getelementptr i8, ptr %to, i64 %l.next
  %back.lanes = load <32 x i8>, ptr %from.l, align 1
  store <32 x i8> %back.lanes, ptr %to.l, align 1
  br label %back.blocks
end:
  ret ptr %to
}

define weak hidden i32 @memcmp(ptr %a, ptr %b, i64 %count) "no-builtins" section ".text.memcmp" {
begin:
  br label %bytes
bytes:
  %i = phi i64 [ 0, %begin ], [ %i.next, %equal ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %same
compare:
  %a.i = getelementptr i8, ptr %a, i64 %i
  %b.i = getelementptr i8, ptr %b, i64 %i
  %a.byte = load i8, ptr %a.i, align 1
  %b.byte = load i8, ptr %b.i, align 1
  %differ = icmp ne i8 %a.byte, %b.byte
  br i1 %differ, label %different, label %equal
equal:
  %i.next = add i64 %i, 1
  br label %bytes
different:
  %a.wide = zext i8 %a.byte to i32
  %b.wide = zext i8 %b.byte to i32
  %difference = sub i32 %a.wide, %b.wide
  ret i32 %difference
same:
  ret i32 0
}
)";

}  // namespace

void add_memory_functions(llvm::Module& module) {
  llvm::SMDiagnostic error;
  const llvm::MemoryBufferRef text(kFunctions, "memory functions");
  if (llvm::parseAssemblyInto(text, &module, nullptr, error))
    throw InternalError("the text of the memory functions cannot be read: " + error.getMessage().str());
}

}  // namespace tessera::inline llvm_codegen
