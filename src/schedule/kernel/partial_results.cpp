#include "schedule/kernel/partial_results.h"

#include "te/extremum_place.h"

namespace tessera::inline schedule {
namespace {

using Values = std::function<Expr(size_t)>;

// `place` where `x` is the extremum `m`.
Expr place_if(const LinearReduction& reduction, const Expr& x, const Expr& m, const Expr& place) {
  const ExtremumPlace& pair = *reduction.pair;
  return select(is_extremum(pair.takes_nan, x, m), place, pair.none);
}

Expr combined(const Reductions& reductions, size_t i, const Values& a, const Values& b) {
  const LinearReduction& reduction = reductions[i];
  if (!reduction.pair) return combine(reduction.combiner, a(i), b(i));
  const size_t m = reduction.pair->extremum;
  const Expr first = a(m), second = b(m), extremum = combine(reductions[m].combiner, first, second);
  return combine(reduction.combiner, place_if(reduction, first, extremum, a(i)),
                 place_if(reduction, second, extremum, b(i)));
}

// Places first.
Stmt for_all(const Reductions& reductions, const std::function<Stmt(size_t)>& make) {
  std::vector<Stmt> stmts;
  for (const bool places : {true, false})
    for (size_t i = 0; i < reductions.size(); ++i)
      if (reductions[i].pair.has_value() == places) stmts.push_back(make(i));
  return seq(std::move(stmts));
}

Values loads(const Partials& partials, const std::vector<Expr>& index) {
  return [&partials, &index](size_t i) { return load(partials[i], index); };
}

}  // namespace

Partials make_partials(const Reductions& reductions, const char* name, const Shape& shape, MemoryScope scope) {
  Partials partials;
  for (const LinearReduction& reduction : reductions)
    partials.push_back(make_buffer(name, reduction.dtype, shape, scope));
  return partials;
}

Stmt alloc_all(const Partials& partials, Stmt body) {
  for (size_t i = partials.size(); i-- > 0;) body = alloc(partials[i], std::move(body));
  return body;
}

Stmt clear_partials(const Reductions& reductions, const Partials& partials, const std::vector<Expr>& index) {
  return for_all(reductions, [&](size_t i) {
    return store(partials[i], index, combiner_identity(reductions[i].combiner, reductions[i].dtype));
  });
}

Stmt add_element(const Reductions& reductions, const Partials& partials, const std::vector<Expr>& index,
                 const VarMap& at) {
  const Values element = [&](size_t i) { return substitute(reductions[i].value, at); };
  return for_all(reductions, [&](size_t i) {
    return store(partials[i], index, combined(reductions, i, loads(partials, index), element));
  });
}

Stmt add_partials(const Reductions& reductions, const Partials& into, const std::vector<Expr>& index,
                  const Partials& from, const std::vector<Expr>& from_index) {
  return for_all(reductions, [&](size_t i) {
    return store(into[i], index, combined(reductions, i, loads(into, index), loads(from, from_index)));
  });
}

Stmt add_lanes(const Reductions& reductions, const Partials& into, const std::vector<Expr>& index, const Partials& from,
               const std::function<Stmt(const std::function<Stmt(const Var&)>&)>& over_lanes) {
  const auto add = [&](bool places) {
    return over_lanes([&](const Var& lane) {
      std::vector<Stmt> stmts;
      for (size_t i = 0; i < reductions.size(); ++i) {
        const LinearReduction& reduction = reductions[i];
        if (reduction.pair.has_value() != places) continue;
        Expr value = load(from[i], {lane});
        if (places) {
          const size_t m = reduction.pair->extremum;
          value = place_if(reduction, load(from[m], {lane}), load(into[m], index), value);
        }
        stmts.push_back(store(into[i], index, combine(reduction.combiner, load(into[i], index), value)));
      }
      return seq(std::move(stmts));
    });
  };
  bool has_places = false;
  for (const LinearReduction& reduction : reductions) has_places |= reduction.pair.has_value();
  if (!has_places) return add(false);
  // What `into` has as places stays where the lanes have no better extremum.
  const Partials before = make_partials(reductions, "before", {1});
  std::vector<Stmt> kept, still;
  for (size_t i = 0; i < reductions.size(); ++i) {
    kept.push_back(store(before[i], {0}, load(into[i], index)));
    if (!reductions[i].pair) continue;
    const size_t m = reductions[i].pair->extremum;
    still.push_back(store(into[i], index,
                          place_if(reductions[i], load(before[m], {0}), load(into[m], index), load(before[i], {0}))));
  }
  return alloc_all(before, seq({seq(std::move(kept)), add(false), seq(std::move(still)), add(true)}));
}

void finish_partials(const Reductions& reductions, const Partials& partials, const std::vector<Expr>& index,
                     VarMap& at) {
  for (size_t i = 0; i < reductions.size(); ++i) {
    const Var& result = reductions[i].result_var;
    at[result.get()] = cast(result.dtype(), load(partials[i], index));
  }
}

}  // namespace tessera::inline schedule
