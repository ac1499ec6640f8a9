#include "runtime/cpu/affinity.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cpu/thread_pool.h"

namespace tessera {

namespace {

// Room for 8192 CPUs; glibc's cpu_set_t ends at 1024, above which the kernel would refuse to answer.
struct CpuMask {
  static constexpr int kMaxCpus = 8192;
  unsigned long words[kMaxCpus / (8 * sizeof(unsigned long))] = {};

  bool read() { return sched_getaffinity(0, sizeof(words), reinterpret_cast<cpu_set_t*>(words)) == 0; }
  bool has(int cpu) const { return CPU_ISSET_S(cpu, sizeof(words), reinterpret_cast<const cpu_set_t*>(words)); }
  void add(int cpu) { CPU_SET_S(cpu, sizeof(words), reinterpret_cast<cpu_set_t*>(words)); }
  void remove(int cpu) { CPU_CLR_S(cpu, sizeof(words), reinterpret_cast<cpu_set_t*>(words)); }
  bool apply() const { return sched_setaffinity(0, sizeof(words), reinterpret_cast<const cpu_set_t*>(words)) == 0; }
  int count() const { return CPU_COUNT_S(sizeof(words), reinterpret_cast<const cpu_set_t*>(words)); }
};

// The file's beginning as a string; false if it cannot be read.
bool read_small_file(const char* path, char* text, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t used = 0;
  while (used + 1 < size) {
    const ssize_t got = read(fd, text + used, size - 1 - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    used += static_cast<size_t>(got);
  }
  close(fd);
  text[used] = 0;
  return used > 0;
}

int limit_of(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  const long long cpus = quota / period + (quota % period != 0);
  return cpus < INT32_MAX ? static_cast<int>(cpus) : INT32_MAX;
}

int smaller_limit(int a, int b) { return a == 0 || (b != 0 && b < a) ? b : a; }

int limit_in_folder_v2(const char* folder) {
  char path[4200], text[128];
  long long quota, period;
  snprintf(path, sizeof(path), "%s/cpu.max", folder);
  if (!read_small_file(path, text, sizeof(text))) return 0;
  return sscanf(text, "%lld %lld", &quota, &period) == 2 ? limit_of(quota, period) : 0;  // "max 100000": no limit
}

int limit_in_folder_v1(const char* folder) {
  char path[4200], text[64];
  long long quota, period;
  snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
  if (!read_small_file(path, text, sizeof(text)) || sscanf(text, "%lld", &quota) != 1) return 0;
  snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
  if (!read_small_file(path, text, sizeof(text)) || sscanf(text, "%lld", &period) != 1) return 0;
  return limit_of(quota, period);
}

// The smallest limit in mount/group, its parents, and mount itself. Inside a container `group` may be the host's name
// for what is visible as the mount's root: folders that do not exist are passed over.
int limit_on_the_way_up(const char* mount, const char* group, int (*limit_in_folder)(const char*)) {
  char folder[4096];
  const size_t root = strlen(mount);
  if (snprintf(folder, sizeof(folder), "%s%s", mount, group) >= static_cast<int>(sizeof(folder))) return 0;
  int limit = 0;
  for (;;) {
    limit = smaller_limit(limit, limit_in_folder(folder));
    char* slash = strrchr(folder + root, '/');
    if (!slash) return limit;
    *slash = 0;
  }
}

// Whether the comma-separated `list` [begin, end) has `word`.
bool list_has(const char* begin, const char* end, const char* word) {
  const size_t size = strlen(word);
  while (begin < end) {
    const char* comma = static_cast<const char*>(memchr(begin, ',', static_cast<size_t>(end - begin)));
    if (!comma) comma = end;
    if (static_cast<size_t>(comma - begin) == size && memcmp(begin, word, size) == 0) return true;
    begin = comma + 1;
  }
  return false;
}

}  // namespace

int cgroup_cpu_limit(const char* membership_file, const char* mount_root) {
  char memberships[8192];
  if (!read_small_file(membership_file, memberships, sizeof(memberships))) return 0;
  int limit = 0;
  char* rest = nullptr;
  for (char* line = strtok_r(memberships, "\n", &rest); line; line = strtok_r(nullptr, "\n", &rest)) {
    // hierarchy:controllers:/group; version 2 has no controllers.
    const char* controllers = strchr(line, ':');
    const char* group = controllers ? strchr(controllers + 1, ':') : nullptr;
    if (!group) continue;
    ++controllers;
    char mount[512];
    if (controllers == group) {
      limit = smaller_limit(limit, limit_on_the_way_up(mount_root, group + 1, limit_in_folder_v2));
    } else if (list_has(controllers, group, "cpu")) {
      snprintf(mount, sizeof(mount), "%s/%.*s", mount_root, static_cast<int>(group - controllers), controllers);
      limit = smaller_limit(limit, limit_on_the_way_up(mount, group + 1, limit_in_folder_v1));
      snprintf(mount, sizeof(mount), "%s/cpu", mount_root);
      limit = smaller_limit(limit, limit_on_the_way_up(mount, group + 1, limit_in_folder_v1));
    }
  }
  return limit;
}

int usable_cpus() {
  CpuMask mask;
  int cpus = mask.read() ? mask.count() : 1;
  const int limit = cgroup_cpu_limit("/proc/self/cgroup", "/sys/fs/cgroup");
  if (limit != 0 && limit < cpus) cpus = limit;
  if (cpus > ThreadPool::kMaxThreads) cpus = ThreadPool::kMaxThreads;
  return cpus < 1 ? 1 : cpus;
}

int parse_thread_count(const char* text, bool list) {
  if (!text) return 0;
  while (*text == ' ' || *text == '\t') ++text;
  if (*text < '0' || *text > '9') return 0;  // strtol would take signs
  char* end;
  errno = 0;
  const long value = strtol(text, &end, 10);
  while (*end == ' ' || *end == '\t') ++end;
  if (*end != 0 && !(list && *end == ',')) return 0;
  return errno == 0 && value >= 1 && value <= ThreadPool::kMaxThreads ? static_cast<int>(value) : 0;
}

int default_num_threads() {
  if (const int threads = parse_thread_count(getenv("TESSERA_NUM_THREADS"), false)) return threads;
  if (const int threads = parse_thread_count(getenv("OMP_NUM_THREADS"), true)) return threads;
  return usable_cpus();
}

bool binding_wanted() {
  const char* text = getenv("TESSERA_BIND_THREADS");
  return text && strcmp(text, "1") == 0;
}

void bind_this_thread(int index) {
  CpuMask mask;
  if (!mask.read()) return;
  const int count = mask.count();
  if (count < 2) return;
  int place = index % count;
  for (int cpu = 0; cpu < CpuMask::kMaxCpus; ++cpu) {
    if (!mask.has(cpu) || place-- != 0) continue;
    CpuMask one;
    one.add(cpu);
    one.apply();
    return;
  }
}

void leave_cpu(int cpu) {
  CpuMask mask;
  if (!mask.read() || !mask.has(cpu) || mask.count() < 2) return;
  CpuMask others = mask;
  others.remove(cpu);
  if (others.apply()) mask.apply();  // the kernel moves us at the first call, and need not move us back
}

}  // namespace tessera
