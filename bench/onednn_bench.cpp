// oneDNN beside us, for bench/operators.py: one convolution or matrix product, timed when told.
//
//   onednn_bench conv N C H W K R S STRIDE GROUPS TOP LEFT BOTTOM RIGHT FOLDER
//   onednn_bench matmul M K N FOLDER
//
// FOLDER holds the operands as raw f32: x, w and, for conv, b (NCHW and OIHW; row-major). The program prints its
// version and its ways, writes the result of each to FOLDER/y.WAY, and then answers each line "WAY SECONDS" with the
// median microseconds of one run. Ways: "plain" reads and writes the layout of the model, weights packed beforehand;
// for convolutions also "reordered", the same from and to the model's layout through the layouts that oneDNN prefers,
// and "own", which leaves out the changes of layout.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

namespace {

using dnnl::memory;
using Clock = std::chrono::steady_clock;

struct Step {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
};

struct Way {
  std::vector<Step> steps;
  memory result;  // in the model's layout, or the engine's own
};

class Bench {
 public:
  explicit Bench(std::string folder) : folder_(std::move(folder)) {}

  memory read(const std::string& name, const memory::dims& dims, memory::format_tag tag) {
    memory made({dims, memory::data_type::f32, tag}, engine_);
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    void* data = made.map_data();
    file.read(static_cast<char*>(data), static_cast<std::streamsize>(made.get_desc().get_size()));
    const bool whole = static_cast<size_t>(file.gcount()) == made.get_desc().get_size() && file.peek() == EOF;
    made.unmap_data(data);
    if (!whole) throw std::runtime_error(folder_ + "/" + name + " is not of this size");
    return made;
  }

  // Weights are brought into the wanted layout once, before any timing.
  memory packed(const memory& from, const memory::desc& wanted) {
    if (from.get_desc() == wanted) return from;
    memory to(wanted, engine_);
    run({{dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}}});
    return to;
  }

  // `source` in another layout, by a step of `way`.
  memory reordered(const memory& source, const memory::desc& wanted, Way& way) {
    if (source.get_desc() == wanted) return source;
    memory to(wanted, engine_);
    way.steps.push_back({dnnl::reorder(source, to), {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, to}}});
    return to;
  }

  void run(std::vector<Step> steps) {
    for (Step& step : steps) step.primitive.execute(stream_, step.arguments);
    stream_.wait();
  }

  void run(Way& way) {
    for (Step& step : way.steps) step.primitive.execute(stream_, step.arguments);
    stream_.wait();
  }

  void conv(const std::vector<long>& a) {
    const memory::dims x = {a[0], a[1], a[2], a[3]}, pad = {a[9], a[10]}, pad_end = {a[11], a[12]},
                       stride = {a[7], a[7]};
    const long groups = a[8];
    memory::dims w = {a[4], a[1] / groups, a[5], a[6]};
    const memory::dims y = {a[0], a[4], (a[2] + a[9] + a[11] - a[5]) / a[7] + 1,
                            (a[3] + a[10] + a[12] - a[6]) / a[7] + 1};
    if (groups > 1) w = {groups, a[4] / groups, a[1] / groups, a[5], a[6]};
    const memory source = read("x", x, memory::format_tag::nchw), bias = read("b", {a[4]}, memory::format_tag::a);
    const memory weights = read("w", w, groups > 1 ? memory::format_tag::goihw : memory::format_tag::oihw);
    const auto desc = [](const memory::dims& dims, memory::format_tag tag) {
      return memory::desc(dims, memory::data_type::f32, tag);
    };
    for (const bool plain : {true, false}) {
      const auto tag = plain ? memory::format_tag::nchw : memory::format_tag::any;
      const dnnl::convolution_forward::primitive_desc chosen(
          engine_, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, desc(x, tag),
          desc(w, memory::format_tag::any), desc({a[4]}, memory::format_tag::a), desc(y, tag), stride, pad, pad_end);
      const memory kernel = packed(weights, chosen.weights_desc());
      Way& whole = ways_[plain ? "plain" : "reordered"];
      const memory from = reordered(source, chosen.src_desc(), whole);
      const memory to(chosen.dst_desc(), engine_);
      const Step step = {dnnl::convolution_forward(chosen),
                         {{DNNL_ARG_SRC, from}, {DNNL_ARG_WEIGHTS, kernel}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, to}}};
      whole.steps.push_back(step);
      whole.result = reordered(to, desc(y, memory::format_tag::nchw), whole);
      if (!plain) ways_["own"] = {{step}, to};
    }
  }

  void matmul(const std::vector<long>& a) {
    const memory source = read("x", {a[0], a[1]}, memory::format_tag::ab);
    const memory weights = read("w", {a[1], a[2]}, memory::format_tag::ab);
    const memory to({{a[0], a[2]}, memory::data_type::f32, memory::format_tag::ab}, engine_);
    const dnnl::matmul::primitive_desc chosen(
        engine_, source.get_desc(), {{a[1], a[2]}, memory::data_type::f32, memory::format_tag::any}, to.get_desc());
    const memory kernel = packed(weights, chosen.weights_desc());
    ways_["plain"] = {
        {{dnnl::matmul(chosen), {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, kernel}, {DNNL_ARG_DST, to}}}}, to};
  }

  void answer() {
    const dnnl_version_t* version = dnnl_version();
    std::printf("%d.%d.%d", version->major, version->minor, version->patch);
    for (auto& [name, way] : ways_) {
      run(way);
      run(way);  // "own" has its operand from the way before it
      if (name != "own") {
        void* data = way.result.map_data();
        std::ofstream(folder_ + "/y." + name, std::ios::binary)
            .write(static_cast<const char*>(data), static_cast<std::streamsize>(way.result.get_desc().get_size()));
        way.result.unmap_data(data);
      }
      std::printf(" %s", name.c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
    std::string name;
    double seconds = 0;
    while (std::cin >> name >> seconds) {
      Way& way = ways_.at(name);
      std::vector<double> times;
      for (const Clock::time_point end =
               Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
           times.size() < 3 || Clock::now() < end;) {
        const Clock::time_point begin = Clock::now();
        run(way);
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      }
      std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
      std::printf("%.4f\n", times[times.size() / 2]);
      std::fflush(stdout);
    }
  }

 private:
  std::string folder_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<std::string, Way> ways_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if (!(kind == "conv" && argc == 16) && !(kind == "matmul" && argc == 6)) {
    std::fprintf(stderr, "usage: see the head of bench/onednn_bench.cpp\n");
    return 1;
  }
  // Builds for SYCL need a driver for the processor, which their package brings.
  const std::string driver = std::string(ONEDNN_LIBRARY_FOLDER) + "/libintelocl.so";
  if (std::ifstream(driver).good()) setenv("OCL_ICD_FILENAMES", driver.c_str(), 0);
  try {
    std::vector<long> numbers;
    for (int i = 2; i < argc - 1; ++i) numbers.push_back(std::strtol(argv[i], nullptr, 10));
    Bench bench(argv[argc - 1]);
    kind == "conv" ? bench.conv(numbers) : bench.matmul(numbers);
    bench.answer();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onednn_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
