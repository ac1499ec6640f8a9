// One line of a schedule's text: `j0, j1 = split(j, [_, 32])`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arith/expr.h"

namespace tessera::inline schedule {

struct TraceArg {
  enum class Kind : uint8_t {
    kName,     // a loop, buffer, stage or statement: i, C.update, C#1; or a word: local
    kInt,      // 32
    kOpen,     // _
    kText,     // "x86.fma.f32"
    kList,     // [i, 4, _]
    kMapping,  // (i, j) -> [floordiv(j, 16), i, floormod(j, 16)]
  };
  Kind kind = Kind::kName;
  std::string key;  // `reader` in `reader=C`; empty: by position
  std::string text;
  int64_t number = 0;
  std::vector<TraceArg> list;
  std::vector<Var> vars;    // kMapping
  std::vector<Expr> index;  // kMapping

  static TraceArg name(std::string text) { return {Kind::kName, "", std::move(text), 0, {}, {}, {}}; }
  static TraceArg integer(int64_t number) { return {Kind::kInt, "", "", number, {}, {}, {}}; }
  static TraceArg open() { return {Kind::kOpen, "", "", 0, {}, {}, {}}; }
  static TraceArg quoted(std::string text) { return {Kind::kText, "", std::move(text), 0, {}, {}, {}}; }
  static TraceArg of_list(std::vector<TraceArg> list) { return {Kind::kList, "", "", 0, std::move(list), {}, {}}; }
  static TraceArg names(const std::vector<std::string>& names) {
    TraceArg arg = of_list({});
    for (const std::string& text : names) arg.list.push_back(name(text));
    return arg;
  }
  TraceArg with_key(std::string k) && {
    key = std::move(k);
    return std::move(*this);
  }
};

struct TraceStep {
  std::vector<std::string> results;
  std::string primitive;
  std::vector<TraceArg> args;
  std::vector<int64_t> decision;  // of a sampling primitive: `decided [32, 32]`
  std::string position;           // "file:line:column" when it was read from a text; not printed
};

// One line, without its end.
std::string to_string(const TraceStep& step);

}  // namespace tessera::inline schedule
