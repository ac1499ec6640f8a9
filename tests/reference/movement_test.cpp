// Operators that only move elements, on every type but string.
#include <algorithm>

#include "reference_util.h"

namespace tessera {
namespace {

std::string name_of(DType dtype) { return std::string(dtype_name(dtype)); }

TEST(Movement, Transpose) {
  const std::vector<std::pair<Dims, Dims>> cases = {{{}, {}},
                                                    {{5}, {0}},
                                                    {{2, 3}, {1, 0}},
                                                    {{3, 0, 2}, {2, 0, 1}},
                                                    {{2, 3, 4, 5}, {0, 2, 3, 1}},
                                                    {{1, 7, 33}, {2, 1, 0}}};
  std::mt19937 random(1);
  for (DType dtype : movable_dtypes())
    for (const auto& [dims, perm] : cases) {
      const Tensor x = random_tensor(random, dtype, dims);
      Dims out;
      for (int64_t axis : perm) out.push_back(dims[static_cast<size_t>(axis)]);
      const auto want = reference(out, [&, &perm = perm](const Dims& index) {
        Dims source(index.size());
        for (size_t d = 0; d < index.size(); ++d) source[static_cast<size_t>(perm[d])] = index[d];
        return at(x, source);
      });
      expect_close(run_op("transpose", {x}, {{"perm", perm}})[0], out, want, name_of(dtype), 0);
    }
}

TEST(Movement, Broadcast) {
  const std::vector<std::pair<Dims, Dims>> cases = {
      {{}, {2, 3}}, {{1}, {0}}, {{3, 1}, {2, 3, 5}}, {{4}, {4}}, {{1, 1}, {3, 300}}};
  std::mt19937 random(2);
  for (DType dtype : movable_dtypes())
    for (const auto& [dims, out] : cases) {
      const Tensor x = random_tensor(random, dtype, dims);
      const auto want = reference(out, [&](const Dims& index) { return at_broadcast(x, index); });
      expect_close(run_op("broadcast", {x}, {{"shape", out}})[0], out, want, name_of(dtype), 0);
    }
}

TEST(Movement, ReshapeAndRelayoutKeepValues) {
  std::mt19937 random(3);
  for (DType dtype : movable_dtypes()) {
    const Tensor x = random_tensor(random, dtype, {2, 3, 5});
    const auto values = reference({30}, [&](const Dims& i) { return x.get_double(i[0]); });
    expect_close(run_op("reshape", {x}, {{"shape", Dims{5, 1, 6}}})[0], {5, 1, 6}, values, name_of(dtype), 0);
    expect_close(run_op("relayout", {x}, {{"layout", Layout::blocked(3, 1, 2)}})[0], {2, 3, 5}, values, name_of(dtype),
                 0);
  }
  const Tensor empty(DType::kF32, {0, 4});
  EXPECT_EQ(run_op("reshape", {empty}, {{"shape", Dims{2, 0}}})[0].dims(), (Dims{2, 0}));
}

TEST(Movement, ChannelShuffle) {
  std::mt19937 random(13);
  for (DType dtype : movable_dtypes())
    for (const auto& [dims, groups] :
         std::vector<std::pair<Dims, int64_t>>{{{2, 12, 3}, 3}, {{1, 6}, 6}, {{1, 7, 2, 2}, 1}, {{3, 0, 2}, 4}}) {
      const Tensor x = random_tensor(random, dtype, dims);
      const auto want = reference(dims, [&](const Dims& index) {
        Dims from = index;
        from[1] = index[1] % groups * (dims[1] / groups) + index[1] / groups;
        return at(x, from);
      });
      expect_close(run_op("channel_shuffle", {x}, {{"groups", groups}})[0], dims, want, name_of(dtype), 0);
    }
}

TEST(Movement, DynamicSliceAndUpdate) {
  std::mt19937 random(17);
  for (DType dtype : movable_dtypes())
    for (DType index : {DType::kI64, DType::kI32})
      for (const auto& [dims, sizes] : std::vector<std::pair<Dims, Dims>>{
               {{}, {}}, {{5}, {1}}, {{4, 6}, {4, 2}}, {{2, 33, 3}, {1, 20, 3}}, {{3, 4}, {0, 4}}, {{0, 2}, {0, 1}}}) {
        const Tensor x = random_tensor(random, dtype, dims), update = random_tensor(random, dtype, sizes);
        const auto rank = static_cast<int64_t>(dims.size());
        Tensor starts(index, {rank});
        for (int64_t d = 0; d < rank; ++d) starts.set_int(d, static_cast<int64_t>(random() % 50) - 20);
        const auto first = [&](size_t d) {
          return std::clamp<int64_t>(starts.get_int(static_cast<int64_t>(d)), 0, dims[d] - sizes[d]);
        };
        const auto part = reference(sizes, [&](Dims i) {
          for (size_t d = 0; d < i.size(); ++d) i[d] += first(d);
          return at(x, i);
        });
        expect_close(run_op("dynamic_slice", {x, starts}, {{"sizes", sizes}})[0], sizes, part, name_of(dtype), 0);
        const auto whole = reference(dims, [&](const Dims& i) {
          Dims place = i;
          bool inside = true;
          for (size_t d = 0; d < i.size(); ++d) {
            place[d] -= first(d);
            inside = inside && place[d] >= 0 && place[d] < sizes[d];
          }
          return inside ? at(update, place) : at(x, i);
        });
        expect_close(run_op("dynamic_update_slice", {x, update, starts})[0], dims, whole, name_of(dtype), 0);
      }
}

TEST(Movement, Slice) {
  struct Case {
    Dims dims, starts, sizes, steps;
  };
  const std::vector<Case> cases = {{{5}, {0}, {5}, {1}},
                                   {{5}, {4}, {3}, {-2}},
                                   {{4, 6}, {1, 0}, {2, 3}, {2, 2}},
                                   {{3, 300}, {2, 299}, {3, 300}, {-1, -1}},
                                   {{3, 4}, {3, 0}, {0, 4}, {1, 1}},
                                   {{}, {}, {}, {}}};
  std::mt19937 random(4);
  for (DType dtype : movable_dtypes())
    for (const Case& c : cases) {
      const Tensor x = random_tensor(random, dtype, c.dims);
      const auto want = reference(c.sizes, [&](const Dims& index) {
        Dims source;
        for (size_t d = 0; d < index.size(); ++d) source.push_back(c.starts[d] + index[d] * c.steps[d]);
        return at(x, source);
      });
      expect_close(run_op("slice", {x}, {{"starts", c.starts}, {"sizes", c.sizes}, {"steps", c.steps}})[0], c.sizes,
                   want, name_of(dtype), 0);
    }
}

// Where index i of a padded dimension comes from; -1: nowhere.
int64_t pad_source(int64_t i, int64_t extent, const std::string& mode) {
  if (mode == "edge") return std::clamp<int64_t>(i, 0, extent - 1);
  if (mode == "wrap") return ((i % extent) + extent) % extent;
  if (mode == "reflect") {
    if (extent == 1) return 0;
    while (i < 0 || i >= extent) i = i < 0 ? -i : 2 * (extent - 1) - i;
    return i;
  }
  return i < 0 || i >= extent ? -1 : i;
}

TEST(Movement, Pad) {
  struct Case {
    Dims dims, low, high;
  };
  const std::vector<Case> cases = {{{4}, {2}, {3}},
                                   {{3, 5}, {0, 1}, {2, 0}},
                                   {{3, 5}, {-1, 2}, {1, -2}},
                                   {{1, 3}, {2, 7}, {3, 9}},
                                   {{2, 2, 40}, {1, 0, 3}, {0, 1, 300}},
                                   {{}, {}, {}}};
  std::mt19937 random(5);
  for (const std::string mode : {"constant", "edge", "reflect", "wrap"})
    for (DType dtype : movable_dtypes())
      for (const Case& c : cases) {
        const Tensor x = random_tensor(random, dtype, c.dims);
        const Tensor value = tensor_of(dtype, {}, {1});
        Dims out = c.dims;
        for (size_t d = 0; d < out.size(); ++d) out[d] += c.low[d] + c.high[d];
        const auto want = reference(out, [&](const Dims& index) {
          Dims source;
          for (size_t d = 0; d < index.size(); ++d) source.push_back(pad_source(index[d] - c.low[d], c.dims[d], mode));
          return std::count(source.begin(), source.end(), -1) ? 1.0 : at(x, source);
        });
        std::vector<Tensor> operands = {x};
        if (mode == "constant") operands.push_back(value);
        expect_close(run_op("pad", operands, {{"low", c.low}, {"high", c.high}, {"mode", mode}})[0], out, want,
                     mode + " " + name_of(dtype), 0);
      }
}

TEST(Movement, Concat) {
  std::mt19937 random(6);
  for (DType dtype : movable_dtypes())
    for (const std::vector<int64_t>& extents : {Dims{3}, Dims{1, 4}, Dims{2, 0, 5, 1, 7}, Dims{200, 100, 1}})
      for (int64_t axis : {0, 1, 2}) {
        std::vector<Tensor> operands;
        Dims out = {2, 3, 2};
        out[static_cast<size_t>(axis)] = 0;
        for (int64_t extent : extents) {
          Dims dims = {2, 3, 2};
          dims[static_cast<size_t>(axis)] = extent;
          out[static_cast<size_t>(axis)] += extent;
          operands.push_back(random_tensor(random, dtype, dims));
        }
        const auto want = reference(out, [&](Dims index) {
          int64_t& i = index[static_cast<size_t>(axis)];
          size_t k = 0;
          while (i >= extents[k]) i -= extents[k++];
          return at(operands[k], index);
        });
        expect_close(run_op("concat", operands, {{"axis", axis}})[0], out, want, name_of(dtype), 0);
      }
}

TEST(Movement, Gather) {
  std::mt19937 random(7);
  const Dims dims = {3, 4, 20};
  for (DType dtype : movable_dtypes())
    for (DType index_type : {DType::kI32, DType::kI64})
      for (int64_t axis : {0, 1, 2}) {
        const auto a = static_cast<size_t>(axis);
        const Tensor x = random_tensor(random, dtype, dims);
        for (const Dims& shape : {Dims{}, Dims{2, 3}, Dims{0}}) {
          Tensor indices(index_type, shape);
          for (int64_t i = 0; i < indices.num_elements(); ++i)
            indices.set_int(i, static_cast<int64_t>(random() % static_cast<uint64_t>(2 * dims[a] + 8)) - dims[a] - 4);
          Dims out(dims.begin(), dims.begin() + axis);
          out.insert(out.end(), shape.begin(), shape.end());
          out.insert(out.end(), dims.begin() + axis + 1, dims.end());
          const auto want = reference(out, [&](const Dims& index) {
            const Dims where(index.begin() + axis, index.begin() + axis + static_cast<int64_t>(shape.size()));
            int64_t i = indices.get_int(flat_index(shape, where));
            if (i < 0) i += dims[a];
            i = std::clamp<int64_t>(i, 0, dims[a] - 1);
            Dims source(index.begin(), index.begin() + axis);
            source.push_back(i);
            source.insert(source.end(), index.begin() + axis + static_cast<int64_t>(shape.size()), index.end());
            return at(x, source);
          });
          expect_close(run_op("gather", {x, indices}, {{"axis", axis}})[0], out, want, name_of(dtype), 0);
        }
      }
}

TEST(Movement, GatherElements) {
  std::mt19937 random(9);
  const Dims dims = {3, 4, 20};
  for (DType dtype : movable_dtypes())
    for (DType index_type : {DType::kI32, DType::kI64})
      for (int64_t axis : {0, 1, 2}) {
        const auto a = static_cast<size_t>(axis);
        const Tensor x = random_tensor(random, dtype, dims);
        Dims out = {2, 4, 17};
        out[a] = 5;
        Tensor indices(index_type, out);
        for (int64_t i = 0; i < indices.num_elements(); ++i)
          indices.set_int(i, static_cast<int64_t>(random() % static_cast<uint64_t>(2 * dims[a] + 8)) - dims[a] - 4);
        const auto want = reference(out, [&](Dims index) {
          int64_t i = indices.get_int(flat_index(out, index));
          if (i < 0) i += dims[a];
          index[a] = std::clamp<int64_t>(i, 0, dims[a] - 1);
          return at(x, index);
        });
        expect_close(run_op("gather_elements", {x, indices}, {{"axis", axis}})[0], out, want, name_of(dtype), 0);
      }
}

TEST(Movement, Iota) {
  for (DType dtype : arithmetic_dtypes())
    for (int64_t axis : {0, 1}) {
      const Dims dims = {3, 40};
      const auto want =
          reference(dims, [&](const Dims& i) { return static_cast<double>(i[static_cast<size_t>(axis)]); });
      expect_close(run_op("iota", {}, {{"shape", dims}, {"axis", axis}, {"dtype", dtype}})[0], dims, want,
                   name_of(dtype), 0);
    }
}

TEST(Movement, ConstantOfEveryType) {
  std::mt19937 random(8);
  for (DType dtype : movable_dtypes()) {
    const Tensor value = random_tensor(random, dtype, {3, 5});
    const Tensor y = run_op("constant", {}, {{"value", TensorPtr(std::make_shared<const Tensor>(value))}})[0];
    expect_close(y, {3, 5}, reference({3, 5}, [&](const Dims& i) { return at(value, i); }), name_of(dtype), 0);
  }
}

}  // namespace
}  // namespace tessera
