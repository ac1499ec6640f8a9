// The run-time C API with C++'s ownership: modules and sessions that free themselves, tensors as spans with shapes,
// errors as exceptions. A thin layer in one header, without code of its own in any library: link what tessera.h takes
// (pkg-config tessera, or find_package(tessera) and tessera::runtime). C++17.
//
//   namespace rt = tessera::run_time;
//   rt::Module module("resnet50.so");
//   rt::Session session(module, {4});                                 // threads
//   std::vector<float> image(1 * 3 * 224 * 224), scores(1000);
//   session.run({rt::view(image, {1, 3, 224, 224})}, {rt::view(scores, {1, 1000})});
//
// Thread safety is the C API's: a Module may be shared, a Session is used by one thread at a time. `run` allocates
// nothing when it is given tensors that it does not have to make.
#ifndef TESSERA_TESSERA_HPP_
#define TESSERA_TESSERA_HPP_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/tessera.h"

namespace tessera::run_time {

// What a function of the C API has answered.
class Error : public std::runtime_error {
 public:
  Error(tessera_status status, std::string id, const std::string& message)
      : std::runtime_error(id.empty() ? message : id + ": " + message), status_(status), id_(std::move(id)) {}
  tessera_status status() const noexcept { return status_; }
  const std::string& id() const noexcept { return id_; }  // "TSR-7003"

 private:
  tessera_status status_;
  std::string id_;
};

namespace detail {

inline void require(tessera_status status, const tessera_error& error) {
  if (status != TESSERA_OK) throw Error(status, error.id, error.message);
}
inline void require_index(tessera_status status, const char* what) {
  if (status != TESSERA_OK) throw Error(status, "", std::string("there is no such ") + what);
}

// The dtype of elements of a C++ type. 16-bit floats have no type in C++17: give raw memory with their dtype.
template <typename T>
constexpr tessera_dtype dtype_of() {
  using E = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<E, bool>) return TESSERA_BOOL;
  else if constexpr (std::is_same_v<E, double>) return TESSERA_F64;
  else if constexpr (std::is_same_v<E, float>) return TESSERA_F32;
  else {
    static_assert(std::is_integral_v<E>, "elements are floats, doubles, integers or bools");
    constexpr bool is_signed = std::is_signed_v<E>;
    if constexpr (sizeof(E) == 8) return is_signed ? TESSERA_I64 : TESSERA_U64;
    else if constexpr (sizeof(E) == 4) return is_signed ? TESSERA_I32 : TESSERA_U32;
    else if constexpr (sizeof(E) == 2) return is_signed ? TESSERA_I16 : TESSERA_U16;
    else return is_signed ? TESSERA_I8 : TESSERA_U8;
  }
}

}  // namespace detail

using Shape = std::vector<std::int64_t>;

// A tensor in memory of the caller's.
class TensorView {
 public:
  TensorView(void* data, tessera_dtype dtype, const std::int64_t* dims, std::size_t rank) : tensor_{} {
    if (rank > TESSERA_MAX_RANK) throw Error(TESSERA_INVALID_ARGUMENT, "", "a tensor of too many dimensions");
    tensor_.data = data;
    tensor_.dtype = dtype;
    tensor_.rank = static_cast<std::int32_t>(rank);
    for (std::size_t d = 0; d < rank; ++d) tensor_.dims[d] = dims[d];
  }
  TensorView(void* data, tessera_dtype dtype, const Shape& shape)
      : TensorView(data, dtype, shape.data(), shape.size()) {}

  const tessera_tensor& c_tensor() const noexcept { return tensor_; }
  tessera_dtype dtype() const noexcept { return tensor_.dtype; }
  Shape shape() const { return Shape(tensor_.dims, tensor_.dims + tensor_.rank); }
  std::int64_t size() const noexcept {
    std::int64_t count = 1;
    for (std::int32_t d = 0; d < tensor_.rank; ++d) count *= tensor_.dims[d];
    return count;
  }
  // The elements; Error when they are of another type.
  template <typename T>
  T* data() const {
    if (detail::dtype_of<T>() != tensor_.dtype)
      throw Error(TESSERA_INVALID_ARGUMENT, "", std::string("the elements are ") + tessera_dtype_name(tensor_.dtype));
    return static_cast<T*>(tensor_.data);
  }

 private:
  tessera_tensor tensor_;
};

// `elements` (anything with data() and size()) as a tensor of this shape; Error unless it has as many elements.
template <typename Container>
TensorView view(Container& elements, const Shape& shape) {
  using Element = std::remove_pointer_t<decltype(elements.data())>;
  static_assert(!std::is_same_v<std::remove_cv_t<Container>, std::vector<bool>>,
                "a vector of bools has no elements in memory");
  // The C API reads inputs through the same structure that outputs are written through.
  TensorView result(const_cast<std::remove_cv_t<Element>*>(elements.data()), detail::dtype_of<Element>(), shape);
  if (static_cast<std::int64_t>(elements.size()) != result.size())
    throw Error(TESSERA_INVALID_ARGUMENT, "",
                std::to_string(elements.size()) + " elements for a shape of " + std::to_string(result.size()));
  return result;
}

// A tensor with memory of its own.
class Tensor {
 public:
  Tensor(tessera_dtype dtype, Shape shape) : shape_(std::move(shape)), dtype_(dtype) {
    std::int64_t bits = tessera_dtype_bits(dtype);
    for (const std::int64_t extent : shape_) bits *= extent;
    bytes_.resize((static_cast<std::size_t>(bits) + 63) / 64);
  }
  TensorView view() const { return TensorView(const_cast<std::uint64_t*>(bytes_.data()), dtype_, shape_); }
  operator TensorView() const { return view(); }  // NOLINT: it is one
  const Shape& shape() const noexcept { return shape_; }
  tessera_dtype dtype() const noexcept { return dtype_; }
  std::int64_t size() const { return view().size(); }
  template <typename T>
  T* data() const {
    return view().template data<T>();
  }

 private:
  Shape shape_;
  tessera_dtype dtype_;
  std::vector<std::uint64_t> bytes_;
};

// What a module declares of an input, output or state.
struct TensorInfo {
  std::string name;
  tessera_dtype dtype;
  Shape shape;  // negative: open
  bool is_open() const {
    for (const std::int64_t extent : shape)
      if (extent < 0) return true;
    return false;
  }
};

class Module {
 public:
  // `entry`: which module of a file that holds several; empty: the first.
  explicit Module(const std::string& path, bool check_weights = true, const std::string& entry = "") {
    tessera_load_options options = load_options(check_weights);
    if (!entry.empty()) options.entry = entry.c_str();
    tessera_error error{};
    tessera_module* module = nullptr;
    detail::require(tessera_module_load(path.c_str(), &options, &module, &error), error);
    module_.reset(module);
  }
  // The bytes may go afterwards.
  Module(const void* data, std::size_t size, bool check_weights = true) {
    const tessera_load_options options = load_options(check_weights);
    tessera_error error{};
    tessera_module* module = nullptr;
    detail::require(tessera_module_load_memory(data, size, &options, &module, &error), error);
    module_.reset(module);
  }

  const tessera_module* get() const noexcept { return module_.get(); }
  std::size_t num_inputs() const { return static_cast<std::size_t>(tessera_module_num_inputs(get())); }
  std::size_t num_outputs() const { return static_cast<std::size_t>(tessera_module_num_outputs(get())); }
  TensorInfo input(std::size_t index) const { return info(tessera_module_input, index, "input"); }
  TensorInfo output(std::size_t index) const { return info(tessera_module_output, index, "output"); }
  std::vector<TensorInfo> inputs() const {
    return all(num_inputs(), [&](std::size_t i) { return input(i); });
  }
  std::vector<TensorInfo> outputs() const {
    return all(num_outputs(), [&](std::size_t i) { return output(i); });
  }
  std::vector<TensorInfo> states() const {
    return all(static_cast<std::size_t>(tessera_module_num_states(get())),
               [&](std::size_t i) { return info(tessera_module_state, i, "state"); });
  }
  std::uint64_t arena_bytes() const { return tessera_module_arena_bytes(get()); }
  std::uint64_t weights_bytes() const { return tessera_module_weights_bytes(get()); }
  // JSON.
  std::string_view metadata() const {
    std::size_t size = 0;
    const char* text = tessera_module_metadata(get(), &size);
    return {text, size};
  }

 private:
  struct Free {
    void operator()(tessera_module* module) const { tessera_module_free(module); }
  };

  static tessera_load_options load_options(bool check_weights) {
    tessera_load_options options{};
    options.size = sizeof options;
    options.skip_weights_digest = check_weights ? 0 : 1;
    return options;
  }
  template <typename Ask>
  TensorInfo info(Ask ask, std::size_t index, const char* what) const {
    tessera_tensor_info found{};
    detail::require_index(ask(get(), static_cast<std::int32_t>(index), &found), what);
    return {found.name, found.dtype, Shape(found.dims, found.dims + found.rank)};
  }
  template <typename Make>
  static std::vector<TensorInfo> all(std::size_t count, Make make) {
    std::vector<TensorInfo> result;
    for (std::size_t i = 0; i < count; ++i) result.push_back(make(i));
    return result;
  }

  std::unique_ptr<tessera_module, Free> module_;
};

struct SessionOptions {
  int threads = 0;  // 0: as the environment and the machine say
};

// The module must outlive it.
class Session {
 public:
  explicit Session(const Module& module, SessionOptions given = {}) : module_(&module) {
    tessera_session_options options{};
    options.size = sizeof options;
    options.num_threads = given.threads;
    tessera_error error{};
    tessera_session* session = nullptr;
    detail::require(tessera_session_create(module.get(), &options, &session, &error), error);
    session_.reset(session);
  }
  Session(const Module&& module, SessionOptions given = {}) = delete;  // it would be gone

  tessera_session* get() const noexcept { return session_.get(); }
  int num_threads() const { return tessera_session_num_threads(get()); }

  // Into memory of the caller's.
  void run(const TensorView* inputs, std::size_t num_inputs, const TensorView* outputs, std::size_t num_outputs) {
    static_assert(sizeof(TensorView) == sizeof(tessera_tensor), "an array of views is one of the C API's tensors");
    tessera_error error{};
    detail::require(
        tessera_session_run(get(), reinterpret_cast<const tessera_tensor*>(inputs),
                            static_cast<std::int32_t>(num_inputs), reinterpret_cast<const tessera_tensor*>(outputs),
                            static_cast<std::int32_t>(num_outputs), &error),
        error);
  }
  void run(std::initializer_list<TensorView> inputs, std::initializer_list<TensorView> outputs) {
    run(inputs.begin(), inputs.size(), outputs.begin(), outputs.size());
  }
  void run(const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs) {
    run(inputs.data(), inputs.size(), outputs.data(), outputs.size());
  }

  // Into tensors that are made for it, of the shapes that the inputs lead to; where data decide a shape, of those.
  std::vector<Tensor> run(const std::vector<TensorView>& inputs) {
    tessera_error error{};
    std::vector<tessera_tensor> given;
    for (const TensorView& input : inputs) given.push_back(input.c_tensor());
    detail::require(tessera_session_prepare(get(), given.data(), static_cast<std::int32_t>(given.size()), &error),
                    error);
    std::vector<Tensor> results = make_outputs();
    std::vector<TensorView> views(results.begin(), results.end());
    run(inputs, views);
    if (tessera_module_decides_shapes(module_->get()) != 0) {
      for (std::size_t i = 0; i < results.size(); ++i) {
        const TensorInfo now = output(i);
        if (now.shape == results[i].shape()) continue;
        // The elements stand at the begin of the memory.
        Tensor smaller(now.dtype, now.shape);
        const std::size_t bytes = static_cast<std::size_t>((smaller.size() * tessera_dtype_bits(now.dtype) + 7) / 8);
        const auto* from = static_cast<const unsigned char*>(results[i].view().c_tensor().data);
        auto* to = static_cast<unsigned char*>(smaller.view().c_tensor().data);
        for (std::size_t b = 0; b < bytes; ++b) to[b] = from[b];
        results[i] = std::move(smaller);
      }
    }
    return results;
  }
  std::vector<Tensor> run(std::initializer_list<TensorView> inputs) { return run(std::vector<TensorView>(inputs)); }

  // An output with the dimensions of the last run.
  TensorInfo output(std::size_t index) const {
    tessera_tensor_info found{};
    detail::require_index(tessera_session_output(get(), static_cast<std::int32_t>(index), &found), "output");
    return {found.name, found.dtype, Shape(found.dims, found.dims + found.rank)};
  }
  // Where a state lies until the next run.
  TensorView state(std::size_t index) const {
    tessera_tensor found{};
    detail::require_index(tessera_session_state(get(), static_cast<std::int32_t>(index), &found), "state");
    return TensorView(found.data, found.dtype, found.dims, static_cast<std::size_t>(found.rank));
  }
  // States become those of `owner` that have their names; it outlives this session, and the two do not run at once.
  void share_states(const Session& owner) {
    tessera_error error{};
    detail::require(tessera_session_share_states(get(), owner.get(), &error), error);
  }
  void reset_states() {
    tessera_error error{};
    detail::require(tessera_session_reset(get(), &error), error);
  }

 private:
  struct Free {
    void operator()(tessera_session* session) const { tessera_session_free(session); }
  };

  std::vector<Tensor> make_outputs() const {
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < module_->num_outputs(); ++i) {
      const TensorInfo info = output(i);
      results.emplace_back(info.dtype, info.shape);
    }
    return results;
  }

  const Module* module_;
  std::unique_ptr<tessera_session, Free> session_;
};

}  // namespace tessera::run_time

#endif  // TESSERA_TESSERA_HPP_
