#include "schedule/rules/loop_builder.h"

namespace tessera {

Stmt outer_nest(const std::vector<OutputLoop>& loops, int64_t enough, const std::function<Stmt(const VarMap&)>& body) {
  size_t joined = 0;
  int64_t iterations = 1;
  while (joined < loops.size() && iterations < enough) iterations *= loops[joined++].extent;

  VarMap at;
  const Var t = make_var("t");
  Expr rest = t;
  for (size_t i = joined; i-- > 0;) {
    at[loops[i].var.get()] = i == 0 ? rest : floormod(rest, loops[i].extent);
    rest = floordiv(rest, loops[i].extent);
  }
  std::vector<Var> serial;
  for (size_t i = joined; i < loops.size(); ++i) {
    serial.push_back(make_var(loops[i].var->name));
    at[loops[i].var.get()] = serial.back();
  }
  if (iterations == 1 && joined > 0)
    for (size_t i = 0; i < joined; ++i) at[loops[i].var.get()] = 0;
  Stmt nest = body(at);
  for (size_t i = loops.size(); i-- > joined;)
    nest = for_loop(serial[i - joined], 0, loops[i].extent, ForKind::kSerial, nest);
  if (iterations > 1) nest = for_loop(t, 0, iterations, ForKind::kParallel, nest);
  return nest;
}

Stmt unrolled(const std::string& name, int64_t begin, int64_t extent, const std::function<Stmt(const Var&)>& body) {
  const Var var = make_var(name);
  return for_loop(var, begin, extent, ForKind::kUnrolled, body(var));
}

Stmt vectorized(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body) {
  const Var var = make_var(name);
  return for_loop(var, 0, extent, ForKind::kVectorized, body(var));
}

}  // namespace tessera
