// A file of tuning records: one SQLite database in write-ahead mode. Every record is a transaction of its own, so what
// was added is there after a kill at any moment; several processes may use a file at once.
//
// Records belong to a kernel (the hash of what it computes, not its name), a machine and a number of threads. A machine
// is what the code generator knows of it (features, caches) and its measured peak of arithmetic, which is compared with
// a tolerance: measurements vary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "target/target.h"
#include "types/numerics.h"

struct sqlite3;

namespace tessera::inline records {

// Everything but the peaks and what is measured on kinds of processors: the text under which machines are told apart
// first. Records of compiles with another way of computing f32 are of a machine of their own.
std::string machine_facts(const Target& target, Fp32Products fp32 = Fp32Products::kFma);
// The target of such a text, with one thread; nothing for any other text.
std::optional<Target> target_of_facts(const std::string& facts);
// Whether two measured peaks may be of one machine: within 4 times.
bool same_peak(double a, double b);

struct MachineRecord {
  int64_t id = 0;
  std::string facts;
  double peak_gflops = 0;    // f32 multiply-adds of one thread, measured
  double memory_gbytes = 0;  // of one thread, from memory
};

// A way of running a kernel, as text, with what is needed to know whether this compiler reads it as it was meant.
struct SchedulePayload {
  std::string kind = "rule point";
  std::string text;      // schedule/kernel/knobs.h
  int knob_format = 0;   // of the text
  int rule_version = 0;  // of the rule that the text names
};

struct RecordKey {
  std::string kernel;  // structural hash
  int64_t machine = 0;
  int threads = 1;
};

struct TrialRecord {
  RecordKey key;
  SchedulePayload payload;
  std::string status;  // "ok", "refused", "build failed", "crash", "timeout", "wrong result"
  std::string detail;  // of a status other than "ok"
  double us = -1;      // median; -1 when it was not measured
  double incumbent_us = -1;
  std::string mode;
  int64_t seed = 0, number = 0;
  double seconds = 0;  // since the begin of the search
  std::string made;    // UTC, ISO 8601; filled in when it is added
};

struct ChoiceRecord {
  RecordKey key;
  SchedulePayload payload;
  double us = 0, default_us = 0;  // medians of the rounds that decided
  int64_t rounds = 0, wins = 0;   // of the paired comparison with the default
  // "won": proven in a whole model, and used. "reverted": lost in the whole model, and is not used. "won alone": a
  // candidate, faster by itself, of which no model was asked yet; it is not used.
  std::string state = "won";
  std::string made;
};

struct KernelRecord {
  std::string hash, text, name;  // the name is for people: nodes of the model in which it was met
};

// The estimate of a model's time while it is tuned; it never rises.
struct ProgressRecord {
  std::string run;  // one search
  std::string model, mode;
  double seconds = 0;
  int64_t trials = 0;
  double model_us = 0;
  std::string what;  // "estimate", "measured default", "measured tuned"
};

class RecordFile {
 public:
  enum class Open : uint8_t { kRead, kWrite };  // kWrite makes the file when it is not there
  // UserError TSR-6401 (no such file, no such folder, no permission), TSR-6402 (no database of ours, or damaged),
  // TSR-6403 (another version's), TSR-6404 (locked for long, disk full). Reading needs no right to write: neither to
  // the file nor to its folder.
  RecordFile(const std::string& path, Open mode);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  const std::string& path() const { return path_; }

  // The machine with the same facts and a peak within 4 times of this one; added when there is none.
  int64_t add_machine(const MachineRecord& machine);
  std::vector<MachineRecord> machines() const;
  void add_kernel(const KernelRecord& kernel);
  std::vector<KernelRecord> kernels() const;
  std::optional<KernelRecord> kernel(const std::string& hash) const;

  void add_trial(const TrialRecord& trial);
  // In the order in which they were added; of one kernel, machine and number of threads, or all.
  std::vector<TrialRecord> trials(const RecordKey& key) const;
  std::vector<TrialRecord> trials() const;
  int64_t count_trials() const;

  // Replaces the choice for its key.
  void set_choice(const ChoiceRecord& choice);
  std::optional<ChoiceRecord> choice(const RecordKey& key) const;
  std::vector<ChoiceRecord> choices() const;

  // What won alone: at most one for each key, beside the key's choice, which it does not touch. Its state is "won
  // alone", whatever `candidate` says.
  void set_candidate(const ChoiceRecord& candidate);
  void drop_candidate(const RecordKey& key);
  std::optional<ChoiceRecord> candidate(const RecordKey& key) const;
  std::vector<ChoiceRecord> candidates() const;

  // Keys with a trial; no order.
  std::vector<RecordKey> tried() const;

  void add_progress(const ProgressRecord& progress);
  std::vector<ProgressRecord> progress() const;

  // Adds what `other` has: trials that are not here, choices that are used where those here were reverted, or that
  // gained more, and candidates that gained more. Answers how many trials and choices came.
  struct Merged {
    int64_t trials = 0, choices = 0;
  };
  Merged merge(const RecordFile& other);
  // Removes all trials but the best `keep` of each key and the default's beside them, to which times are compared, and
  // kernels and machines that nothing refers to; with 0 all trials. Answers how many trials went.
  int64_t prune(int64_t keep);

 private:
  class Statement;
  void run(const char* sql) const;
  [[noreturn]] void fail(int code, const std::string& what) const;
  // Of `key`; null: all.
  std::vector<TrialRecord> read_trials(const RecordKey* key) const;
  std::vector<ChoiceRecord> read_choices(std::string_view table, const RecordKey* key) const;
  void write_choice(std::string_view table, const ChoiceRecord& choice, const std::string& state);
  // Older versions made none, and reading adds none.
  bool has_candidates() const;
  void open(const std::string& name, int flags);
  void open_to_read();

  std::string path_;
  sqlite3* db_ = nullptr;
};

}  // namespace tessera::inline records
