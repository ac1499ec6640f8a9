// Functions in place of observers and decisions, for tests that want one event or answer.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "driver/decisions.h"
#include "driver/observer.h"

namespace tessera {

class OnGraph : public Observer {
 public:
  using See = std::function<void(std::string_view step, const Graph& graph)>;
  explicit OnGraph(See see) : see_(std::move(see)) {}
  void graph_made(std::string_view step, const Graph& graph) override { see_(step, graph); }

 private:
  See see_;
};

class OnProgram : public Observer {
 public:
  using See = std::function<void(std::string_view step, const Program& program)>;
  explicit OnProgram(See see) : see_(std::move(see)) {}
  void program_made(std::string_view step, const Program& program) override { see_(step, program); }

 private:
  See see_;
};

// Changes what steps give.
class SpoiledGraphs : public Decisions {
 public:
  using Spoil = std::function<void(std::string_view step, Graph& graph)>;
  explicit SpoiledGraphs(Spoil spoil) : spoil_(std::move(spoil)) {}
  void amend(std::string_view step, Graph& graph) override { spoil_(step, graph); }
  using Decisions::amend;

 private:
  Spoil spoil_;
};

class SpoiledPrograms : public Decisions {
 public:
  using Spoil = std::function<void(std::string_view step, Program& program)>;
  explicit SpoiledPrograms(Spoil spoil) : spoil_(std::move(spoil)) {}
  void amend(std::string_view step, Program& program) override { spoil_(step, program); }
  using Decisions::amend;

 private:
  Spoil spoil_;
};

}  // namespace tessera
