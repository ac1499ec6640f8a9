// tessera-generate MODEL.gguf MODULE.so --prompt TEXT ...: what `tessera generate` becomes once the model is compiled.
// A process of its own, so that none of the compiler is in memory while text is made.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>

#include "generate/generation.h"
#include "generate/language_model.h"
#include "generate/language_model_file.h"
#include "generate/tokenizer.h"
#include "support/error.h"
#include "support/peak_memory.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

struct Flags {
  std::string model, module, prompt = "-";
  int threads = 0;
  bool stats = false, tokens_only = false, no_begin = false;
  GenerationOptions options;
};

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

void run(const Flags& flags) {
  const auto begin = Clock::now();
  LanguageModelFile file(flags.model);
  const bool reads = flags.prompt == "-";
  const std::vector<Token> prompt = file.tokenizer().encode(
      reads ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : flags.prompt, !flags.no_begin);
  if (flags.tokens_only) return fmt::print("{}\n", fmt::join(prompt, " "));
  LanguageModel model(flags.module, flags.threads, file.context());
  const auto cache = model.new_cache();
  GenerationOptions options = flags.options;
  options.ends = file.ends();
  Generation generation(model, *cache, prompt, std::move(options));
  const auto loaded = Clock::now();

  Clock::time_point first, last;
  int64_t count = 0;
  Detokenizer detokenizer(file.tokenizer());
  const auto print = [](const std::string& piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  while (!generation.is_done()) {
    Generation* const alone[] = {&generation};
    const auto decided = step(model, alone);
    for (const Token token : decided.front()) {
      last = Clock::now();
      if (count++ == 0) first = last;
      print(detokenizer.add(token));
    }
  }
  print(detokenizer.rest() + "\n");
  if (!flags.stats || count == 0) return;
  const double rate = count > 1 ? static_cast<double>(count - 1) / seconds(last - first) : 0;
  fmt::print(stderr, "load {:.2f} s, prompt of {} tokens {:.3f} s, then {:.1f} tokens/s; at most {:.1f} MB\n",
             seconds(loaded - begin), prompt.size(), seconds(first - loaded), rate, peak_memory() / (1 << 20));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Continues a text with a language model that was compiled before; `tessera generate` starts it.");
  app.add_option("model", flags.model, "A language model in a GGUF file, for its tokenizer")->required();
  app.add_option("module", flags.module, "The module that it was compiled to");
  app.add_option("--prompt", flags.prompt, "The text that is continued; - reads standard input");
  app.add_option("--max-tokens", flags.options.max_tokens, "The longest answer");
  app.add_option("--temperature", flags.options.sampling.temperature, "0 takes the best token each time");
  app.add_option("--top-k", flags.options.sampling.top_k, "Draw among so many; 0: all");
  app.add_option("--top-p", flags.options.sampling.top_p, "Draw among the fewest with this probability");
  app.add_option("--seed", flags.options.seed, "Of what is drawn");
  app.add_option("--lookup", flags.options.lookup, "Guess so many tokens at a time from the text so far");
  app.add_option("--threads", flags.threads, "0: as tessera run");
  app.add_flag("--no-begin", flags.no_begin, "Put no token in front that the model may want there");
  app.add_flag("--tokens", flags.tokens_only, "Print the numbers of the prompt's tokens, and no more");
  app.add_flag("--stats", flags.stats, "Tokens per second, on standard error");
  CLI11_PARSE(app, argc, argv);
  try {
    run(flags);
    return 0;
  } catch (const UserError& error) {
    fmt::print(stderr, "error {}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 64;
  }
}
