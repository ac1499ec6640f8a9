#include "schedule/kernel/loop_builder.h"

#include "schedule/kernel/partial_results.h"

namespace tessera::inline schedule {

Stmt outer_nest(const std::vector<OutputLoop>& loops, int64_t enough, const std::function<Stmt(const VarMap&)>& body) {
  size_t joined = 0;
  int64_t iterations = 1, before_last = 1;
  // More than half of what is asked for is as good when the alternative is to cut a loop.
  for (; joined < loops.size() && iterations <= enough / 2; iterations *= loops[joined++].extent)
    before_last = iterations;
  // Of the innermost joined loop only as much as is needed: what it takes to find one's place is paid once a piece.
  int64_t piece = 1;
  if (joined > 0 && iterations > enough) {
    const int64_t extent = loops[joined - 1].extent, needed = (enough + before_last - 1) / before_last;
    int64_t pieces = needed;
    while (extent % pieces != 0) ++pieces;
    piece = extent / pieces;
    iterations /= piece;
  }

  VarMap at;
  const Var t = make_var("t"), within = make_var("r");
  Expr rest = t;
  for (size_t i = joined; i-- > 0;) {
    const bool is_cut = piece > 1 && i + 1 == joined;
    const int64_t extent = is_cut ? loops[i].extent / piece : loops[i].extent;
    const Expr place = i == 0 ? rest : floormod(rest, extent);
    at[loops[i].var.get()] = is_cut ? place * Expr(piece) + within : place;
    rest = floordiv(rest, extent);
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
  if (piece > 1) nest = for_loop(within, 0, piece, ForKind::kSerial, nest);
  if (iterations > 1) nest = for_loop(t, 0, iterations, ForKind::kParallel, nest);
  return nest;
}

Stmt unrolled(const std::string& name, int64_t begin, int64_t extent, const std::function<Stmt(const Var&)>& body) {
  const Var var = make_var(name);
  return for_loop(var, begin, extent, ForKind::kUnrolled, body(var));
}

Stmt with_prefetch(const BufferPtr& buffer, const Expr& element, Stmt body) {
  return prefetching(for_loop(make_var("z"), 0, 1, ForKind::kSerial, std::move(body)), buffer, {element});
}

Stmt vectorized(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body) {
  const Var var = make_var(name);
  return for_loop(var, 0, extent, ForKind::kVectorized, body(var));
}

Stmt store_each(const LinearKernel& kernel, const VarMap& at, const VarMap& finished) {
  const std::vector<Expr> place = {substitute(kernel.out_index, at)};
  std::vector<Stmt> stores = {store(kernel.out(), place, substitute(kernel.value, finished))};
  for (const LinearResult& result : kernel.more_results)
    stores.push_back(store(result.out, place, substitute(result.value, finished)));
  return seq(std::move(stores));
}

Stmt with_results(const LinearKernel& kernel, int64_t lanes, const std::function<Stmt(const StoreResults&)>& body) {
  if (kernel.more_results.empty())
    return body([&](const VarMap& at, const Expr&) { return store_each(kernel, at, at); });
  std::vector<LinearResult> results = {{kernel.out(), kernel.value}};
  results.insert(results.end(), kernel.more_results.begin(), kernel.more_results.end());
  std::vector<BufferPtr> registers;
  for (size_t i = 0; i < results.size(); ++i)
    registers.push_back(
        make_buffer("value" + std::to_string(i), results[i].out->dtype, {lanes}, MemoryScope::kRegister));
  Stmt all = body([&](const VarMap& at, const Expr& lane) {
    std::vector<Stmt> stmts;
    for (size_t i = 0; i < results.size(); ++i)
      stmts.push_back(store(registers[i], {lane}, substitute(results[i].value, at)));
    for (size_t i = 0; i < results.size(); ++i)
      stmts.push_back(store(results[i].out, {substitute(kernel.out_index, at)}, load(registers[i], {lane})));
    return seq(std::move(stmts));
  });
  for (size_t i = registers.size(); i-- > 0;) all = alloc(registers[i], std::move(all));
  return all;
}

Stmt one_element(const LinearKernel& kernel, const VarMap& at) {
  const std::vector<LinearReduction> reductions = all_reductions(kernel);
  const Partials sums = make_partials(reductions, "acc", {1});
  VarMap finish = at;
  finish_partials(reductions, sums, {0}, finish);
  std::vector<Stmt> parts;
  if (!reductions.empty()) {
    parts.push_back(clear_partials(reductions, sums, {0}));
    Stmt sum = add_element(reductions, sums, {0}, at);
    for (size_t i = kernel.reduce.size(); i-- > 0;)
      sum = for_loop(kernel.reduce[i].var, 0, kernel.reduce[i].extent, ForKind::kSerial, sum);
    parts.push_back(std::move(sum));
  }
  parts.push_back(with_results(kernel, 1, [&](const StoreResults& store_at) { return store_at(finish, 0); }));
  return alloc_all(sums, seq(std::move(parts)));
}

}  // namespace tessera::inline schedule
