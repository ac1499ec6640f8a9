// Turns the clock of the bench until it is done.
#include <memory>

#include "Vbench.h"
#include "verilated.h"

int main(int argc, char** argv) {
  const auto context = std::make_unique<VerilatedContext>();
  context->commandArgs(argc, argv);
  const auto bench = std::make_unique<Vbench>(context.get());
  bench->clk = 0;
  while (!context->gotFinish()) {
    bench->eval();
    bench->clk = !bench->clk;
    context->timeInc(1);
  }
  bench->final();
  return 0;
}
