#include "records/records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string_view>

#include "support/error.h"

namespace tessera::inline records {
namespace {

constexpr int kApplication = 0x54535231;  // "TSR1", in the file's header
constexpr int kSchema = 1;
// A machine that others use shows a third of its peak at times; features and caches tell most machines apart before.
constexpr double kSamePeak = 4;
constexpr int kPatienceMs = 10'000;

constexpr char kCreate[] = R"(
CREATE TABLE machines(id INTEGER PRIMARY KEY, facts TEXT NOT NULL, peak_gflops REAL NOT NULL, memory_gbytes REAL NOT NULL);
CREATE TABLE kernels(hash TEXT PRIMARY KEY, text TEXT NOT NULL, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials(id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, kernel TEXT NOT NULL, machine INTEGER NOT NULL,
  threads INTEGER NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL, knob_format INTEGER NOT NULL,
  rule_version INTEGER NOT NULL, status TEXT NOT NULL, detail TEXT NOT NULL, us REAL NOT NULL, incumbent_us REAL NOT NULL,
  mode TEXT NOT NULL, seed INTEGER NOT NULL, number INTEGER NOT NULL, seconds REAL NOT NULL, made TEXT NOT NULL);
CREATE INDEX trials_of ON trials(kernel, machine, threads);
CREATE TABLE choices(kernel TEXT NOT NULL, machine INTEGER NOT NULL, threads INTEGER NOT NULL, kind TEXT NOT NULL,
  payload TEXT NOT NULL, knob_format INTEGER NOT NULL, rule_version INTEGER NOT NULL, us REAL NOT NULL,
  default_us REAL NOT NULL, rounds INTEGER NOT NULL, wins INTEGER NOT NULL, state TEXT NOT NULL, made TEXT NOT NULL,
  PRIMARY KEY(kernel, machine, threads)) WITHOUT ROWID;
CREATE TABLE progress(id INTEGER PRIMARY KEY, run TEXT NOT NULL, model TEXT NOT NULL, mode TEXT NOT NULL,
  seconds REAL NOT NULL, trials INTEGER NOT NULL, model_us REAL NOT NULL, what TEXT NOT NULL);
)";

// In files of older versions as well, which do not look at it.
constexpr char kCreateCandidates[] = R"(
CREATE TABLE IF NOT EXISTS candidates(kernel TEXT NOT NULL, machine INTEGER NOT NULL, threads INTEGER NOT NULL,
  kind TEXT NOT NULL, payload TEXT NOT NULL, knob_format INTEGER NOT NULL, rule_version INTEGER NOT NULL,
  us REAL NOT NULL, default_us REAL NOT NULL, rounds INTEGER NOT NULL, wins INTEGER NOT NULL, state TEXT NOT NULL,
  made TEXT NOT NULL, PRIMARY KEY(kernel, machine, threads)) WITHOUT ROWID;
)";
constexpr std::string_view kChoices = "choices", kCandidates = "candidates";
constexpr char kWonAlone[] = "won alone";

// Columns of trials and choices in the order in which they are read and written, after a trial's uid.
const std::string kTrialColumns =
    "kernel, machine, threads, kind, payload, knob_format, rule_version, status, detail, us, incumbent_us, mode, seed, "
    "number, seconds, made";
const std::string kChoiceColumns =
    "kernel, machine, threads, kind, payload, knob_format, rule_version, us, default_us, rounds, wins, state, made";
constexpr char kOfKey[] = "kernel=? AND machine=? AND threads=?";
constexpr char kNow[] = "strftime('%Y-%m-%dT%H:%M:%SZ','now')";

std::string new_uid() {
  // No engine of our own: a forked process would go on with the same numbers.
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// How facts end, by Fp32Products.
constexpr std::array<std::string_view, 3> kFp32Names = {"", " fp32 pieces", " fp32 auto"};

// Whether `a` stands rather than `b` for the same kernel: a reverted choice is not used, so it never displaces one that
// is.
bool is_better(const ChoiceRecord& a, const ChoiceRecord& b) {
  const bool a_used = a.state == "won", b_used = b.state == "won";
  return a_used != b_used ? a_used : a.us * b.default_us < b.us * a.default_us;
}

}  // namespace

bool same_peak(double a, double b) { return a > 0 && b > 0 && std::max(a, b) <= kSamePeak * std::min(a, b); }

std::string machine_facts(const Target& target, Fp32Products fp32) {
  std::vector<std::string> features(target.features.begin(), target.features.end());
  features.insert(features.end(), target.emulated.begin(), target.emulated.end());
  return fmt::format("{} {} [{}] L1 {} L2 {} L3 {}{}", target.triple, target.cpu, fmt::join(features, ","),
                     target.l1_bytes, target.l2_bytes, target.l3_bytes, kFp32Names[static_cast<size_t>(fp32)]);
}

std::optional<Target> target_of_facts(const std::string& facts) {
  Target target;
  std::istringstream words(facts);
  std::string features, l1, l2, l3;
  if (!(words >> target.triple >> target.cpu >> features >> l1 >> target.l1_bytes >> l2 >> target.l2_bytes >> l3 >>
        target.l3_bytes))
    return std::nullopt;
  if (features.size() < 2 || features.front() != '[' || features.back() != ']') return std::nullopt;
  std::istringstream list(features.substr(1, features.size() - 2));
  for (std::string feature; std::getline(list, feature, ',');)
    (feature == kPortableTiles ? target.emulated : target.features).insert(feature);
  for (const Fp32Products fp32 : {Fp32Products::kFma, Fp32Products::kPieces, Fp32Products::kPiecesIfFaster})
    if (machine_facts(target, fp32) == facts) return target;
  return std::nullopt;
}

// One prepared statement; values go in and come out by place.
class RecordFile::Statement {
 public:
  Statement(const RecordFile& file, const std::string& sql) : file_(file) {
    const int code = sqlite3_prepare_v2(file.db_, sql.c_str(), -1, &statement_, nullptr);
    if (code != SQLITE_OK) file.fail(code, "prepare");
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& add(int64_t value) { return bound(sqlite3_bind_int64(statement_, ++place_, value)); }
  Statement& add(int value) { return add(static_cast<int64_t>(value)); }
  Statement& add(double value) { return bound(sqlite3_bind_double(statement_, ++place_, value)); }
  Statement& add(const std::string& text) {
    return bound(sqlite3_bind_text(statement_, ++place_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT));
  }
  Statement& add(const RecordKey& key) { return add(key.kernel).add(key.machine).add(key.threads); }
  Statement& add(const SchedulePayload& p) { return add(p.kind).add(p.text).add(p.knob_format).add(p.rule_version); }

  // Whether there is another row.
  bool next() {
    column_ = 0;
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) file_.fail(code, "step");
    return code == SQLITE_ROW;
  }
  void done() {
    while (next()) {
    }
  }
  int64_t whole() { return sqlite3_column_int64(statement_, column_++); }
  double real() { return sqlite3_column_double(statement_, column_++); }
  std::string text() {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column_));
    const int size = sqlite3_column_bytes(statement_, column_++);
    return text ? std::string(text, static_cast<size_t>(size)) : std::string();
  }
  RecordKey key() {
    RecordKey key;
    key.kernel = text();
    key.machine = whole();
    key.threads = static_cast<int>(whole());
    return key;
  }
  SchedulePayload payload() {
    SchedulePayload payload;
    payload.kind = text();
    payload.text = text();
    payload.knob_format = static_cast<int>(whole());
    payload.rule_version = static_cast<int>(whole());
    return payload;
  }

 private:
  Statement& bound(int code) {
    if (code != SQLITE_OK) file_.fail(code, "bind");
    return *this;
  }
  const RecordFile& file_;
  sqlite3_stmt* statement_ = nullptr;
  int place_ = 0, column_ = 0;
};

void RecordFile::fail(int code, const std::string& what) const {
  const std::string said = db_ ? sqlite3_errmsg(db_) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      throw UserError({.id = "TSR-6402",
                       .message = fmt::format("'{}' cannot be read as tuning records: {}", path_, said),
                       .node = {},
                       .legal = "a file that 'tessera tune --db' has written",
                       .hint = "restore a copy of it, or leave it out; new records begin in a file of another name"});
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
      throw UserError({.id = "TSR-6401",
                       .message = fmt::format("the tuning records '{}' cannot be opened: {}", path_, said),
                       .node = {},
                       .legal = "a file in a folder that this process may write to",
                       .hint = "check the path and its permissions"});
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      throw UserError(
          {.id = "TSR-6404",
           .message = fmt::format("the tuning records '{}' cannot be used now: {}", path_, said),
           .node = {},
           .legal = {},
           .hint = "another process may hold the file, or the disk may be full; what was added before is safe"});
    default: throw InternalError(fmt::format("records: {} of '{}': {} ({})", what, path_, said, code));
  }
}

void RecordFile::run(const char* sql) const {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, sql);
}

void RecordFile::open(const std::string& name, int flags) {
  sqlite3_close_v2(db_);
  db_ = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &db_, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) fail(code, "open");
  sqlite3_busy_timeout(db_, kPatienceMs);
}

// A file in write-ahead mode asks its readers, too, to make files beside it. Where this process may not, and no log
// says that somebody writes, the file is all there is, and does not change.
void RecordFile::open_to_read() {
  open(path_, SQLITE_OPEN_READONLY);
  sqlite3_stmt* statement = nullptr;
  int code = sqlite3_prepare_v2(db_, "SELECT count(*) FROM sqlite_master", -1, &statement, nullptr);
  if (code == SQLITE_OK) code = sqlite3_step(statement);
  sqlite3_finalize(statement);
  if ((code & 0xff) != SQLITE_CANTOPEN && (code & 0xff) != SQLITE_READONLY) return;  // whatever it is, later
  std::error_code error;
  const auto log_bytes = std::filesystem::file_size(path_ + "-wal", error);
  if (!error && log_bytes > 0)
    throw UserError({.id = "TSR-6401",
                     .message = fmt::format("the tuning records '{}' cannot be read: '{}-wal' holds a part of them, "
                                            "and it takes the right to write beside it to read that",
                                            path_, path_),
                     .node = {},
                     .legal = "a file without a log, or with one that this process may use",
                     .hint = "copy both files to a folder of your own"});
  std::string uri = "file://";
  for (const char c : std::filesystem::absolute(path_, error).string())
    if (c == '%' || c == '?' || c == '#') uri += fmt::format("%{:02x}", c);
    else uri += c;
  open(uri + "?immutable=1", SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
}

RecordFile::RecordFile(const std::string& path, Open mode) : path_(path) {
  std::error_code error;
  if (mode == Open::kRead && !std::filesystem::exists(path, error))
    throw UserError({.id = "TSR-6401",
                     .message = fmt::format("there are no tuning records '{}'", path),
                     .node = {},
                     .legal = "a file that 'tessera tune --db' has written",
                     .hint = "check the path, or tune a model first"});
  if (std::filesystem::is_directory(path, error))
    throw UserError({.id = "TSR-6401",
                     .message = fmt::format("'{}' is a folder", path),
                     .node = {},
                     .legal = "a file that 'tessera tune --db' has written, or may make",
                     .hint = {}});
  try {
    if (mode == Open::kWrite) open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    else open_to_read();
    const auto pragma = [&](const char* sql) {
      Statement statement(*this, sql);
      return statement.next() ? statement.whole() : 0;
    };
    const auto prepare = [&](bool may_create) {
      const int64_t tables = pragma("SELECT count(*) FROM sqlite_master");
      const int64_t application = pragma("PRAGMA application_id");
      const int64_t schema = pragma("PRAGMA user_version");
      if (may_create && tables == 0 && application == 0 && schema == 0) {
        run(kCreate);
        run(fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", kApplication, kSchema).c_str());
        return;
      }
      if (application != kApplication)
        throw UserError({.id = "TSR-6402",
                         .message = fmt::format("'{}' is a database of another program", path),
                         .node = {},
                         .legal = "a file that 'tessera tune --db' has written",
                         .hint = "choose another name; the file is left as it is"});
      if (schema != kSchema)
        throw UserError({.id = "TSR-6403",
                         .message = fmt::format("the tuning records '{}' have form {}", path, schema),
                         .node = {},
                         .legal = fmt::format("form {}", kSchema),
                         .hint = "use the version of tessera that wrote it, or begin a new file"});
    };
    if (mode == Open::kWrite) {
      // One transaction: of several processes that meet a new file, one makes the tables.
      run("BEGIN IMMEDIATE");
      prepare(true);
      run(kCreateCandidates);
      run("COMMIT");
      run("PRAGMA journal_mode=WAL");
      run("PRAGMA synchronous=NORMAL");
    } else if (std::filesystem::file_size(path, error) == 0 && pragma("SELECT count(*) FROM sqlite_master") == 0) {
      // Whoever made it was killed before the tables were there: no records yet.
      open(":memory:", SQLITE_OPEN_READWRITE);
      prepare(true);
      run(kCreateCandidates);
    } else {
      prepare(false);
    }
    Statement whole(*this, "PRAGMA quick_check(1)");
    if (whole.next())
      if (const std::string answer = whole.text(); answer != "ok")
        throw UserError({.id = "TSR-6402",
                         .message = fmt::format("the tuning records '{}' are damaged: {}", path, answer),
                         .node = {},
                         .legal = "a file that 'tessera tune --db' has written",
                         .hint = "begin a new file, or restore a copy"});
  } catch (...) {
    sqlite3_close_v2(db_);
    db_ = nullptr;
    throw;
  }
}

RecordFile::~RecordFile() { sqlite3_close_v2(db_); }

int64_t RecordFile::add_machine(const MachineRecord& machine) {
  for (const MachineRecord& known : machines())
    if (known.facts == machine.facts && same_peak(known.peak_gflops, machine.peak_gflops)) return known.id;
  Statement(*this, "INSERT INTO machines(facts, peak_gflops, memory_gbytes) VALUES(?,?,?)")
      .add(machine.facts)
      .add(machine.peak_gflops)
      .add(machine.memory_gbytes)
      .done();
  return sqlite3_last_insert_rowid(db_);
}

std::vector<MachineRecord> RecordFile::machines() const {
  std::vector<MachineRecord> result;
  Statement rows(*this, "SELECT id, facts, peak_gflops, memory_gbytes FROM machines ORDER BY id");
  while (rows.next()) {
    MachineRecord& machine = result.emplace_back();
    machine.id = rows.whole();
    machine.facts = rows.text();
    machine.peak_gflops = rows.real();
    machine.memory_gbytes = rows.real();
  }
  return result;
}

void RecordFile::add_kernel(const KernelRecord& kernel) {
  Statement(*this, "INSERT OR IGNORE INTO kernels(hash, text, name) VALUES(?,?,?)")
      .add(kernel.hash)
      .add(kernel.text)
      .add(kernel.name)
      .done();
}

std::vector<KernelRecord> RecordFile::kernels() const {
  std::vector<KernelRecord> result;
  Statement rows(*this, "SELECT hash, text, name FROM kernels ORDER BY hash");
  while (rows.next()) {
    KernelRecord& kernel = result.emplace_back();
    kernel.hash = rows.text();
    kernel.text = rows.text();
    kernel.name = rows.text();
  }
  return result;
}

std::optional<KernelRecord> RecordFile::kernel(const std::string& hash) const {
  Statement row(*this, "SELECT text, name FROM kernels WHERE hash=?");
  row.add(hash);
  if (!row.next()) return std::nullopt;
  KernelRecord kernel;
  kernel.hash = hash;
  kernel.text = row.text();
  kernel.name = row.text();
  return kernel;
}

void RecordFile::add_trial(const TrialRecord& trial) {
  Statement(*this,
            fmt::format("INSERT INTO trials(uid, {}) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,{})", kTrialColumns, kNow))
      .add(new_uid())
      .add(trial.key)
      .add(trial.payload)
      .add(trial.status)
      .add(trial.detail)
      .add(trial.us)
      .add(trial.incumbent_us)
      .add(trial.mode)
      .add(trial.seed)
      .add(trial.number)
      .add(trial.seconds)
      .done();
}

std::vector<TrialRecord> RecordFile::read_trials(const RecordKey* key) const {
  std::vector<TrialRecord> result;
  Statement rows(*this, fmt::format("SELECT {} FROM trials WHERE {} ORDER BY id", kTrialColumns, key ? kOfKey : "1"));
  if (key) rows.add(*key);
  while (rows.next()) {
    TrialRecord& trial = result.emplace_back();
    trial.key = rows.key();
    trial.payload = rows.payload();
    trial.status = rows.text();
    trial.detail = rows.text();
    trial.us = rows.real();
    trial.incumbent_us = rows.real();
    trial.mode = rows.text();
    trial.seed = rows.whole();
    trial.number = rows.whole();
    trial.seconds = rows.real();
    trial.made = rows.text();
  }
  return result;
}

std::vector<TrialRecord> RecordFile::trials(const RecordKey& key) const { return read_trials(&key); }
std::vector<TrialRecord> RecordFile::trials() const { return read_trials(nullptr); }

int64_t RecordFile::count_trials() const {
  Statement row(*this, "SELECT count(*) FROM trials");
  row.next();
  return row.whole();
}

void RecordFile::write_choice(std::string_view table, const ChoiceRecord& choice, const std::string& state) {
  Statement(*this, fmt::format("INSERT OR REPLACE INTO {}({}) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,{})", table,
                               kChoiceColumns, kNow))
      .add(choice.key)
      .add(choice.payload)
      .add(choice.us)
      .add(choice.default_us)
      .add(choice.rounds)
      .add(choice.wins)
      .add(state)
      .done();
}

std::vector<ChoiceRecord> RecordFile::read_choices(std::string_view table, const RecordKey* key) const {
  std::vector<ChoiceRecord> result;
  Statement rows(*this, fmt::format("SELECT {} FROM {} WHERE {} ORDER BY kernel, machine, threads", kChoiceColumns,
                                    table, key ? kOfKey : "1"));
  if (key) rows.add(*key);
  while (rows.next()) {
    ChoiceRecord& choice = result.emplace_back();
    choice.key = rows.key();
    choice.payload = rows.payload();
    choice.us = rows.real();
    choice.default_us = rows.real();
    choice.rounds = rows.whole();
    choice.wins = rows.whole();
    choice.state = rows.text();
    if (table == kCandidates) choice.state = kWonAlone;
    choice.made = rows.text();
  }
  return result;
}

void RecordFile::set_choice(const ChoiceRecord& choice) { write_choice(kChoices, choice, choice.state); }

std::optional<ChoiceRecord> RecordFile::choice(const RecordKey& key) const {
  auto found = read_choices(kChoices, &key);
  if (found.empty()) return std::nullopt;
  return std::move(found[0]);
}

std::vector<ChoiceRecord> RecordFile::choices() const { return read_choices(kChoices, nullptr); }

bool RecordFile::has_candidates() const {
  return Statement(*this, "SELECT 1 FROM sqlite_master WHERE type='table' AND name='candidates'").next();
}

void RecordFile::set_candidate(const ChoiceRecord& candidate) { write_choice(kCandidates, candidate, kWonAlone); }

void RecordFile::drop_candidate(const RecordKey& key) {
  Statement(*this, fmt::format("DELETE FROM {} WHERE {}", kCandidates, kOfKey)).add(key).done();
}

std::optional<ChoiceRecord> RecordFile::candidate(const RecordKey& key) const {
  if (!has_candidates()) return std::nullopt;
  auto found = read_choices(kCandidates, &key);
  if (found.empty()) return std::nullopt;
  return std::move(found[0]);
}

std::vector<ChoiceRecord> RecordFile::candidates() const {
  return has_candidates() ? read_choices(kCandidates, nullptr) : std::vector<ChoiceRecord>();
}

std::vector<RecordKey> RecordFile::tried() const {
  std::vector<RecordKey> result;
  Statement rows(*this, "SELECT DISTINCT kernel, machine, threads FROM trials");
  while (rows.next()) result.push_back(rows.key());
  return result;
}

void RecordFile::add_progress(const ProgressRecord& progress) {
  Statement(*this, "INSERT INTO progress(run, model, mode, seconds, trials, model_us, what) VALUES(?,?,?,?,?,?,?)")
      .add(progress.run)
      .add(progress.model)
      .add(progress.mode)
      .add(progress.seconds)
      .add(progress.trials)
      .add(progress.model_us)
      .add(progress.what)
      .done();
}

std::vector<ProgressRecord> RecordFile::progress() const {
  std::vector<ProgressRecord> result;
  Statement rows(*this, "SELECT run, model, mode, seconds, trials, model_us, what FROM progress ORDER BY id");
  while (rows.next()) {
    ProgressRecord& entry = result.emplace_back();
    entry.run = rows.text();
    entry.model = rows.text();
    entry.mode = rows.text();
    entry.seconds = rows.real();
    entry.trials = rows.whole();
    entry.model_us = rows.real();
    entry.what = rows.text();
  }
  return result;
}

RecordFile::Merged RecordFile::merge(const RecordFile& other) {
  Merged merged;
  run("BEGIN IMMEDIATE");
  try {
    for (const KernelRecord& kernel : other.kernels()) add_kernel(kernel);
    std::map<int64_t, int64_t> machine_here;
    for (const MachineRecord& machine : other.machines()) machine_here[machine.id] = add_machine(machine);
    const auto here = [&](int64_t machine) {
      const auto found = machine_here.find(machine);
      if (found == machine_here.end())
        throw UserError({.id = "TSR-6402",
                         .message = fmt::format("'{}' has records of a machine {} that it does not describe",
                                                other.path(), machine),
                         .node = {},
                         .legal = "a file that 'tessera tune --db' has written",
                         .hint = "restore a copy of it, or leave it out"});
      return found->second;
    };
    Statement rows(other, fmt::format("SELECT uid, {} FROM trials ORDER BY id", kTrialColumns));
    const std::string insertion =
        fmt::format("INSERT OR IGNORE INTO trials(uid, {}) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", kTrialColumns);
    while (rows.next()) {
      const std::string uid = rows.text();
      RecordKey key = rows.key();
      key.machine = here(key.machine);
      Statement insert(*this, insertion);
      insert.add(uid).add(key).add(rows.payload());
      insert.add(rows.text()).add(rows.text()).add(rows.real()).add(rows.real()).add(rows.text());
      insert.add(rows.whole()).add(rows.whole()).add(rows.real()).add(rows.text());
      insert.done();
      merged.trials += sqlite3_changes(db_);
    }
    for (ChoiceRecord choice : other.choices()) {
      choice.key.machine = here(choice.key.machine);
      const auto own = this->choice(choice.key);
      if (own && !is_better(choice, *own)) continue;
      set_choice(choice);
      ++merged.choices;
    }
    for (ChoiceRecord candidate : other.candidates()) {
      candidate.key.machine = here(candidate.key.machine);
      const auto own = this->candidate(candidate.key);
      if (!own || is_better(candidate, *own)) set_candidate(candidate);
    }
    run("COMMIT");
  } catch (...) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
  return merged;
}

int64_t RecordFile::prune(int64_t keep) {
  run("BEGIN IMMEDIATE");
  Statement(*this,
            "DELETE FROM trials WHERE NOT (number = 0 AND status = 'ok' AND ?1 > 0) AND id NOT IN (SELECT id FROM "
            "(SELECT id, row_number() OVER (PARTITION BY kernel, machine, threads ORDER BY us < 0, us) AS place "
            "FROM trials WHERE number > 0) WHERE place <= ?1)")
      .add(keep)
      .done();
  const int64_t gone = sqlite3_changes(db_);
  run("DELETE FROM kernels WHERE hash NOT IN (SELECT kernel FROM trials UNION SELECT kernel FROM choices "
      "UNION SELECT kernel FROM candidates)");
  run("DELETE FROM machines WHERE id NOT IN (SELECT machine FROM trials UNION SELECT machine FROM choices "
      "UNION SELECT machine FROM candidates)");
  run("COMMIT");
  run("VACUUM");
  return gone;
}

}  // namespace tessera::inline records
