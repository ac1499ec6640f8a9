// What passes and rules decided, and why: a list that whoever starts a compile may hand in to be told. `explain` reads
// it. Passes that get none (a null pointer) compute no texts, so remarks cost nothing when nobody asks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::inline support {

struct Remark {
  enum class Kind : uint8_t { kDone, kRefused };
  Kind kind = Kind::kDone;
  std::string pass;   // who says it: "fuse_groups"
  std::string node;   // a location (the model's node names joined by '+'), or "%value" where a node has none
  std::string other;  // the second node that it is about, in the same form; may be empty
  std::string text;   // the reason or what was done: a phrase without a full stop
  bool operator==(const Remark&) const = default;
};

// Not shared between threads.
class Remarks {
 public:
  void done(std::string pass, std::string node, std::string text, std::string other = "") {
    list_.push_back({Remark::Kind::kDone, std::move(pass), std::move(node), std::move(other), std::move(text)});
  }
  void refused(std::string pass, std::string node, std::string text, std::string other = "") {
    list_.push_back({Remark::Kind::kRefused, std::move(pass), std::move(node), std::move(other), std::move(text)});
  }
  const std::vector<Remark>& list() const { return list_; }

 private:
  std::vector<Remark> list_;
};

}  // namespace tessera::inline support
